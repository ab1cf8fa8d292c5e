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
    // What is evicted may keep a part, and come again at the end of the order: each once.
    let left = this.#held.size;
    for (const item of this.#held.keys()) {
      if (this.#total <= this.#limit || left === 0) return;
      left -= 1;
      if (item === newest) continue;
      this.#evictions += 1;
      item.evict();
    }
  }
}

/** Smaller changes are not worth the budget's bookkeeping at each turn. */
const STEP_BYTES = 4 * 1024;

/** What one holder has told the budget of itself. */
export class BudgetShare {
  readonly #budget: Budget;
  readonly #holder: Evictable;
  #charged = 0;

  constructor(budget: Budget, holder: Evictable) {
    this.#budget = budget;
    this.#holder = holder;
  }

  /** It holds so much by now; small changes are told with later ones. */
  holds(bytes: number): void {
    if (Math.abs(bytes - this.#charged) >= STEP_BYTES) this.keeps(bytes);
  }

  /** It holds exactly so much. */
  keeps(bytes: number): void {
    this.#charged = bytes;
    this.#budget.charge(this.#holder, bytes);
  }

  release(): void {
    this.keeps(0);
  }
}
