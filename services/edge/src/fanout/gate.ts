/** One ephemeral message, its lines ready to be sent. */
export interface Delta {
  readonly attempt: number;
  readonly epoch: string;
  /** The last durable seq that its writer had assigned before. */
  readonly after: number;
  readonly frames: readonly Uint8Array[];
  readonly bytes: number;
  /** Its place among all that its hub has shown, from 1 on; 0: not shown yet. */
  order: number;
}

/** What the gate needs to know of a delivered message. */
export interface Delivered {
  readonly lastSeq: number;
  readonly attempt: number;
  readonly barrier: number;
  readonly settled: number;
}

export type GateVerdict = "show" | "held" | "dropped";

export interface GateLimits {
  readonly heldBytes: number;
  readonly keptBytes: number;
}

/**
 * Decides when a run's deltas may be shown. They come on a lane of their own, so without this
 * they could overtake the events they belong to, and a worker that lost its run could go on
 * showing text beside its successor's.
 *
 * `held`: deltas from after a durable event that is not delivered yet. `kept`: deltas shown
 * since the last settled checkpoint, for clients that come later. Both are bounded; what does
 * not fit is dropped, since the next checkpoint says it durably.
 */
export class Gate {
  readonly #limits: GateLimits;
  readonly #epoch: string;
  #lastSeq: number;
  #attempt: number;
  #barrier: number;
  #held: Delta[] = [];
  #heldBytes = 0;
  #kept: Delta[] = [];
  #keptBytes = 0;

  constructor(limits: GateLimits, epoch: string, known: Delivered) {
    this.#limits = limits;
    this.#epoch = epoch;
    this.#lastSeq = known.lastSeq;
    this.#attempt = known.attempt;
    this.#barrier = known.barrier;
  }

  get bytes(): number {
    return this.#heldBytes + this.#keptBytes;
  }

  /** Shown since the last settled checkpoint, oldest first. */
  get kept(): readonly Delta[] {
    return this.#kept;
  }

  offer(delta: Delta): GateVerdict {
    if (!this.#isCurrent(delta)) return "dropped";
    if (delta.after <= this.#lastSeq) {
      this.#keep(delta);
      return "show";
    }
    if (this.#heldBytes + delta.bytes > this.#limits.heldBytes) return "dropped";
    this.#held.push(delta);
    this.#heldBytes += delta.bytes;
    return "held";
  }

  /** A durable message went out; returns the deltas that may follow it now, in order. */
  delivered(message: Delivered): readonly Delta[] {
    this.#lastSeq = Math.max(this.#lastSeq, message.lastSeq);
    this.#attempt = Math.max(this.#attempt, message.attempt);
    this.#barrier = Math.max(this.#barrier, message.barrier);
    if (message.barrier > 0 || message.settled > 0) this.#settle(message.settled);
    if (this.#held.length === 0) return [];
    const shown: Delta[] = [];
    const waiting: Delta[] = [];
    this.#heldBytes = 0;
    for (const delta of this.#held) {
      if (!this.#isCurrent(delta)) continue;
      if (delta.after <= this.#lastSeq) shown.push(delta);
      else {
        waiting.push(delta);
        this.#heldBytes += delta.bytes;
      }
    }
    this.#held = waiting;
    for (const delta of shown) if (delta.after >= message.settled) this.#keep(delta);
    return shown;
  }

  clear(): void {
    this.#held = [];
    this.#kept = [];
    this.#heldBytes = 0;
    this.#keptBytes = 0;
  }

  #isCurrent(delta: Delta): boolean {
    return (
      delta.epoch === this.#epoch && delta.attempt >= this.#attempt && delta.after >= this.#barrier
    );
  }

  /** Drops what a checkpoint or a barrier has made void. */
  #settle(settled: number): void {
    this.#kept = this.#kept.filter((delta) => this.#isCurrent(delta) && delta.after >= settled);
    this.#keptBytes = this.#kept.reduce((sum, delta) => sum + delta.bytes, 0);
  }

  #keep(delta: Delta): void {
    if (delta.bytes > this.#limits.keptBytes) return;
    this.#kept.push(delta);
    this.#keptBytes += delta.bytes;
    let stale = 0;
    while (this.#keptBytes > this.#limits.keptBytes) {
      this.#keptBytes -= this.#kept[stale]?.bytes ?? 0;
      stale += 1;
    }
    if (stale > 0) this.#kept.splice(0, stale);
  }
}
