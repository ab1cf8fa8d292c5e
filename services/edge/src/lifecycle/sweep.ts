/** What is looked at once a round. */
export interface Swept {
  sweep(now: number): void;
}

/**
 * One paced sweep over all connections instead of timers of their own: each tick looks at its
 * share, so that a round over 50,000 is no pause for anybody.
 */
export class Sweep<T extends Swept> {
  readonly #items: Set<T> = new Set();
  readonly #ticks: number;
  #iterator: Iterator<T, undefined>;

  /** A round takes `ticks` ticks. */
  constructor(ticks: number) {
    this.#ticks = ticks;
    this.#iterator = this.#items.values();
  }

  get size(): number {
    return this.#items.size;
  }

  items(): IterableIterator<T> {
    return this.#items.values();
  }

  add(item: T): void {
    this.#items.add(item);
  }

  remove(item: T): void {
    this.#items.delete(item);
  }

  tick(now: number): void {
    // The iterator of a Set lives through additions and removals; at its end a new round begins.
    for (let left = Math.ceil(this.#items.size / this.#ticks); left > 0; left -= 1) {
      const step = this.#iterator.next();
      if (step.done === true) {
        this.#iterator = this.#items.values();
        return;
      }
      step.value.sweep(now);
    }
  }
}
