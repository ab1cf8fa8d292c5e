/** Something that holds memory which can be had again from the log (or, for deltas, done without). */
export interface Evictable {
  /** Lets go of what it can, and tells the budget through `charge`. */
  evict(): void;
}

/**
 * One byte budget for all rings, pages and delta buffers of the node: what was used least
 * recently goes first. So 10,000 quiet hubs cannot each hold a full ring, and a 50 MB backlog
 * read by one slow client cannot push the node over its limit.
 */
export class Budget {
  readonly #limit: number;
  /** In order of use: a Map iterates in order of insertion. */
  readonly #held: Map<Evictable, number> = new Map();
  #total = 0;
  #evictions = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  get total(): number {
    return this.#total;
  }

  get evictions(): number {
    return this.#evictions;
  }

  /** `item` holds `bytes` now. Counts as a use. Others are evicted where the total is over the limit. */
  charge(item: Evictable, bytes: number): void {
    const before = this.#held.get(item);
    if (before !== undefined) this.#held.delete(item);
    this.#total += bytes - (before ?? 0);
    if (bytes > 0) this.#held.set(item, bytes);
    if (bytes > (before ?? 0) && this.#total > this.#limit) this.#makeRoom(item);
  }

  touch(item: Evictable): void {
    const bytes = this.#held.get(item);
    if (bytes === undefined) return;
    this.#held.delete(item);
    this.#held.set(item, bytes);
  }

  #makeRoom(newest: Evictable): void {
    // A snapshot of the order: evicting charges, and charging reorders.
    for (const item of [...this.#held.keys()]) {
      if (this.#total <= this.#limit) return;
      if (item === newest) continue;
      this.#evictions += 1;
      item.evict();
    }
  }
}
