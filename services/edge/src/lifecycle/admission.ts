/**
 * A bounded number of things at a time. A reconnect storm is slowed or turned away before any
 * work is done for it, never a crash.
 */
export class Slots {
  readonly #limit: number;
  readonly #queueLimit: number;
  readonly #queue: (() => void)[] = [];
  #taken = 0;
  #granted = 0;

  /** Up to `queueLimit` may wait for one of `limit`. */
  constructor(limit: number, queueLimit: number) {
    this.#limit = limit;
    this.#queueLimit = queueLimit;
  }

  get taken(): number {
    return this.#taken;
  }

  /** How many have been given out since the start. */
  get granted(): number {
    return this.#granted;
  }

  get queued(): number {
    return this.#queue.length;
  }

  /** Takes a slot at once, or not at all. */
  tryTake(): boolean {
    if (this.#taken >= this.#limit) return false;
    this.#taken += 1;
    this.#granted += 1;
    return true;
  }

  /** Waits for a slot; "full" where too many wait already. */
  async take(): Promise<"taken" | "full"> {
    if (this.tryTake()) return "taken";
    if (this.#queue.length >= this.#queueLimit) return "full";
    await new Promise<void>((go) => this.#queue.push(go));
    return "taken";
  }

  /** Gives a slot back, to the one who has waited longest. */
  give(): void {
    const next = this.#queue.shift();
    if (next) {
      this.#granted += 1;
      next();
    } else {
      this.#taken -= 1;
    }
  }
}
