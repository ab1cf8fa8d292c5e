import type { Entry } from "./frame.ts";
import type { Budget, Evictable } from "./budget.ts";

/** A piece of the log kept for a while: every message of the filter in (`after`, `to`]. */
export interface Page {
  readonly after: number;
  readonly to: number;
  readonly entries: readonly Entry[];
}

/** Reads stored messages after `after`; `end`: nothing is left at or below `upTo`, as the leader says. */
export type ReadPage = (after: number, upTo: number) => Promise<{ entries: Entry[]; end: boolean }>;

interface Waiter {
  readonly after: number;
  readonly resolve: (page: Page) => void;
  readonly reject: (error: unknown) => void;
}

interface Cached extends Page, Evictable {
  usedAt: number;
}

const PAGE_OVERHEAD = 256;

/**
 * Log pages of one hub, shared by all who catch up behind its ring.
 *
 * A page serves every reader whose place it covers, not only the one it was read for. Reads go
 * one at a time, each from the lowest place that is waited for: after a restart with a thousand
 * clients just behind the hub's start, a few reads serve them all, not a thousand.
 */
export class Pages {
  readonly #read: ReadPage;
  readonly #budget: Budget;
  readonly #now: () => number;
  /** Sorted by `after`; disjoint. */
  readonly #cached: Cached[] = [];
  #waiting: Waiter[] = [];
  #reading = false;

  constructor(read: ReadPage, budget: Budget, now: () => number) {
    this.#read = read;
    this.#budget = budget;
    this.#now = now;
  }

  get size(): number {
    return this.#cached.length;
  }

  covering(after: number): Page | undefined {
    const page = this.#cached[this.#indexOf(after)];
    if (page === undefined || after >= page.to) return undefined;
    page.usedAt = this.#now();
    this.#budget.touch(page);
    return page;
  }

  /**
   * The page that covers `after`, read where it is not kept. `ringFrom` says where the ring
   * begins when the read starts. Rejects with what the read rejected with.
   */
  want(after: number, ringFrom: () => number): Promise<Page> {
    const page = this.covering(after);
    if (page) return Promise.resolve(page);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ after, resolve, reject });
      if (!this.#reading) void this.#readAll(ringFrom);
    });
  }

  /** Lets go of pages that nobody has used since `before`. */
  forgetUnused(before: number): void {
    for (const page of [...this.#cached]) if (page.usedAt < before) page.evict();
  }

  clear(): void {
    for (const page of [...this.#cached]) page.evict();
  }

  /** Serves all that wait now; who comes meanwhile is in the next round, so nobody starves. */
  async #readAll(ringFrom: () => number): Promise<void> {
    this.#reading = true;
    while (this.#waiting.length > 0) {
      let round = this.#waiting.toSorted((a, b) => a.after - b.after);
      this.#waiting = [];
      while (round.length > 0) {
        const lowest = round[0];
        if (lowest === undefined) break;
        try {
          const page = await this.#fetch(lowest.after, ringFrom());
          const served = round.filter((w) => w.after >= page.after && w.after < page.to);
          for (const waiter of served) waiter.resolve(page);
          round = round.filter((w) => w.after < page.after || w.after >= page.to);
          // A page that does not even cover who asked: the ring has come to cover it. Let it look again.
          if (served.length === 0) round = this.#resolveWith(page, lowest, round);
        } catch (error) {
          for (const waiter of round) waiter.reject(error);
          round = [];
        }
      }
    }
    this.#reading = false;
  }

  #resolveWith(page: Page, waiter: Waiter, round: Waiter[]): Waiter[] {
    waiter.resolve(page);
    return round.filter((w) => w !== waiter);
  }

  async #fetch(after: number, ringFrom: number): Promise<Page> {
    const kept = this.covering(after);
    if (kept) return kept;
    const next = this.#cached[this.#indexOf(after) + 1];
    // Not beyond what is known already: the next page's start, else the ring's.
    const bound = next === undefined ? ringFrom : Math.min(next.after, ringFrom);
    if (bound <= after) return { after, to: after, entries: [] };
    const { entries, end } = await this.#read(after, bound);
    const within = entries.filter((entry) => entry.streamSeq <= bound);
    const whole = end || within.length < entries.length;
    const last = within.at(-1)?.streamSeq ?? after;
    const page = this.#keep({ after, to: whole ? bound : last, entries: within });
    return page;
  }

  #keep(page: Page): Page {
    if (page.to <= page.after) return page;
    const evict = (): void => {
      const at = this.#cached.indexOf(cached);
      if (at >= 0) this.#cached.splice(at, 1);
      this.#budget.charge(cached, 0);
    };
    const cached: Cached = { ...page, usedAt: this.#now(), evict };
    this.#cached.splice(this.#indexOf(page.after) + 1, 0, cached);
    const bytes = page.entries.reduce((sum, entry) => sum + entry.bytes, PAGE_OVERHEAD);
    this.#budget.charge(cached, bytes);
    return page;
  }

  /** Index of the last page whose `after` is at or below; -1 for none. */
  #indexOf(after: number): number {
    let low = 0;
    let high = this.#cached.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const page = this.#cached[middle];
      if (page !== undefined && page.after <= after) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
