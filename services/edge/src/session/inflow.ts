import { FRAME_RATE, MAX_FRAME_BYTES } from "@throughline/protocol";

/** How much a client may send, in frames and in bytes: each a bucket that fills at a steady rate. */
export interface InflowLimits {
  readonly frames: BucketLimits;
  readonly bytes: BucketLimits;
}

interface BucketLimits {
  readonly perSecond: number;
  /** Sent at once after a pause. */
  readonly burst: number;
  /** Sent beyond that, and refused, before the connection is closed. */
  readonly excess: number;
}

/** The table's rate, scaled to so many frames a second. */
export function inflowLimits(framesPerSecond: number): InflowLimits {
  const scale = framesPerSecond / FRAME_RATE.perSecond;
  return {
    frames: {
      perSecond: framesPerSecond,
      burst: Math.ceil(FRAME_RATE.burst * scale),
      excess: Math.ceil(FRAME_RATE.excess * scale),
    },
    // Eight results of tools at once, each as large as a frame may be.
    bytes: {
      perSecond: 2 * MAX_FRAME_BYTES,
      burst: 8 * MAX_FRAME_BYTES,
      excess: 2 * MAX_FRAME_BYTES,
    },
  };
}

/** `flood`: it goes on although it is refused. */
export type InflowVerdict =
  | { readonly kind: "taken" }
  | { readonly kind: "limited"; readonly retryAfterMs: number }
  | { readonly kind: "flood" };

/**
 * What one connection sends, valid or not. What is refused counts too: who waits as it is told is taken
 * again, and who does not runs into debt until the connection is closed.
 */
export class Inflow {
  readonly #frames: Bucket;
  readonly #bytes: Bucket;

  constructor(limits: InflowLimits, now: number) {
    this.#frames = new Bucket(limits.frames, now);
    this.#bytes = new Bucket(limits.bytes, now);
  }

  take(bytes: number, now: number): InflowVerdict {
    const frames = this.#frames.take(1, now);
    const waitMs = Math.max(frames, this.#bytes.take(bytes, now));
    if (waitMs === 0) return { kind: "taken" };
    if (waitMs === Infinity) return { kind: "flood" };
    return { kind: "limited", retryAfterMs: Math.ceil(waitMs) };
  }

  /** The last frame was called for by what we sent. */
  giveBack(): void {
    this.#frames.giveBack(1);
  }
}

/** A token bucket that may be in debt. */
class Bucket {
  readonly #limits: BucketLimits;
  #left: number;
  #filledAt: number;

  constructor(limits: BucketLimits, now: number) {
    this.#limits = limits;
    this.#left = limits.burst;
    this.#filledAt = now;
  }

  /** Takes `amount`. 0: there was enough; else the ms until there will be some again; Infinity: too far in debt. */
  take(amount: number, now: number): number {
    const { perSecond, burst, excess } = this.#limits;
    this.#left = Math.min(burst, this.#left + ((now - this.#filledAt) * perSecond) / 1_000);
    this.#filledAt = now;
    this.#left -= amount;
    if (this.#left >= 0) return 0;
    return this.#left < -excess ? Infinity : (-this.#left * 1_000) / perSecond;
  }

  giveBack(amount: number): void {
    this.#left = Math.min(this.#limits.burst, this.#left + amount);
  }
}
