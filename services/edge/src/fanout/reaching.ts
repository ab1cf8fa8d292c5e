interface Waiter {
  readonly streamSeq: number;
  readonly resolve: (reached: boolean) => void;
}

/** Those who wait for a hub to come to a place that the leader has and this node has not seen yet. */
export class Reaching {
  readonly #patienceMs: number;
  readonly #after: (ms: number, run: () => void) => void;
  readonly #waiters: Set<Waiter> = new Set();

  constructor(patienceMs: number, after: (ms: number, run: () => void) => void) {
    this.#patienceMs = patienceMs;
    this.#after = after;
  }

  /** False: not in time. */
  wait(streamSeq: number): Promise<boolean> {
    return new Promise((resolve) => {
      const waiter = { streamSeq, resolve };
      this.#waiters.add(waiter);
      this.#after(this.#patienceMs, () => {
        if (this.#waiters.delete(waiter)) resolve(false);
      });
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
