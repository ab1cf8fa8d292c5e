interface Waiter {
  readonly streamSeq: number;
  readonly resolve: (reached: boolean) => void;
}

/** Those who wait for a hub to come to a place: one that the leader has already, or the next that anything will have. */
export class Reaching {
  readonly #after: (ms: number, run: () => void) => void;
  readonly #waiters: Set<Waiter> = new Set();

  constructor(after: (ms: number, run: () => void) => void) {
    this.#after = after;
  }

  /** False: not in time, or `end` came first. */
  wait(streamSeq: number, patienceMs: number, end?: Promise<void>): Promise<boolean> {
    return new Promise((resolve) => {
      const waiter = { streamSeq, resolve };
      this.#waiters.add(waiter);
      const giveUp = (): void => {
        if (this.#waiters.delete(waiter)) resolve(false);
      };
      this.#after(patienceMs, giveUp);
      void end?.then(giveUp);
    });
  }

  reached(streamSeq: number): void {
    if (this.#waiters.size === 0) return;
    for (const waiter of this.#waiters) {
      if (waiter.streamSeq > streamSeq) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(true);
    }
  }

  giveUp(): void {
    for (const waiter of this.#waiters) waiter.resolve(false);
    this.#waiters.clear();
  }
}
