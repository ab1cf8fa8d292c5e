/** One pull that is to be made. */
export interface PullOrder {
  readonly lane: number;
  readonly batch: number;
  readonly expiresMs: number;
}

export interface RoomOptions {
  readonly lanes: number;
  /** Expiry of a pull while there is plenty of room. */
  readonly expiresMs: number;
}

/**
 * Most jobs in one pull. A frozen worker's open pulls swallow that many redeliveries (for one
 * `ack_wait`); with a round trip of 1 ms, 32 are still 30,000 jobs a second.
 */
const BATCH = 32;
/** With little room the lanes take turns, and each gets its turn within this time. */
const TURN_CYCLE_MS = 1_000;
const TURN_LEAST_MS = 50;

/**
 * Shares the free room of a worker over its lanes (one per agent kind and shard), so that no
 * more is asked for than there is room for and no lane waits behind another. Pure but for
 * the turn that it remembers.
 *
 * With plenty of room a lane gets half of its fair share, so that a busy one can come again
 * while the others' pulls are open. With less room than lanes they take turns by short pulls.
 */
export class RoomShare {
  readonly #lanes: number;
  readonly #expiresMs: number;
  #turn = 0;

  constructor(options: RoomOptions) {
    this.#lanes = options.lanes;
    this.#expiresMs = options.expiresMs;
  }

  /** `free`: places not taken and not asked for by an open pull. `idle`: lanes without an open pull. */
  orders(free: number, idle: ReadonlySet<number>): PullOrder[] {
    if (free <= 0 || idle.size === 0) return [];
    const batch = Math.max(1, Math.min(BATCH, Math.floor(free / (2 * this.#lanes))));
    const plenty = this.#lanes === 1 || free >= 2 * this.#lanes;
    const expiresMs = plenty ? this.#expiresMs : this.#turnMs(free);
    const orders: PullOrder[] = [];
    let left = free;
    const from = this.#turn;
    for (let i = 0; i < this.#lanes && left > 0; i += 1) {
      const lane = (from + i) % this.#lanes;
      if (!idle.has(lane)) continue;
      orders.push({ lane, batch, expiresMs });
      left -= batch;
      this.#turn = (lane + 1) % this.#lanes;
    }
    return orders;
  }

  #turnMs(free: number): number {
    const share = (TURN_CYCLE_MS * Math.min(free, this.#lanes)) / this.#lanes;
    return Math.min(this.#expiresMs, Math.max(TURN_LEAST_MS, share));
  }
}
