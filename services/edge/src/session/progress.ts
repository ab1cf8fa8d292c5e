/** Whether a socket gets on with what waits for it. */
export class Progress {
  /** Since when nothing has moved; undefined while nothing waits. */
  #stuckAt: number | undefined;

  /** The kernel took some. */
  drained(now: number): void {
    if (this.#stuckAt !== undefined) this.#stuckAt = now;
  }

  /** To be asked at each sweep. For how long, in ms, nothing has moved although something `waits`. */
  stuckFor(now: number, waits: boolean): number {
    if (!waits) {
      this.#stuckAt = undefined;
      return 0;
    }
    this.#stuckAt ??= now;
    return now - this.#stuckAt;
  }
}
