import { MAX_FRAME_BYTES, MAX_SUBSCRIPTIONS } from "@throughline/protocol";
import type { GateLimits } from "./gate.ts";
import type { RingLimits } from "./ring.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** Sizes of the fan-out in bytes and times in ms, each with its reason. Tests shrink them. */
export interface FanoutLimits {
  readonly ring: RingLimits;
  readonly gate: GateLimits;
  /** Most that all topics together may publish in one turn of the loop; the rest goes in the next. */
  readonly turnBytes: number;
  /** Most that one hub may have waiting for its turn; beyond it its clients are fed from the log. */
  readonly unpublishedBytes: number;
  /** Fed to a paced client at once, and read from the log at once. */
  readonly pageBytes: number;
  /** Fed to all paced clients together in one turn: a reconnect storm must not hold up live events. */
  readonly feedBytes: number;
  /** A hub's sockets are looked at when it has sent this much since the last look. */
  readonly lookBytes: number;
  /** A paced client is fed below this much buffered. */
  readonly lowWater: number;
  /** Above: no deltas. */
  readonly softLimit: number;
  /** Above: off the topic, fed as it drains. */
  readonly hardLimit: number;
  /** A hub without clients stays this long, so that a reconnect storm finds it warm. */
  readonly lingerMs: number;
  /** A log page that nobody uses goes after this long. */
  readonly pageIdleMs: number;
  /** Log reads in flight on the node. */
  readonly reads: number;
  /** How long a cursor from ahead of this node's view is waited for. */
  readonly reachMs: number;
}

export const FANOUT_LIMITS: FanoutLimits = {
  // At 100 messages a second, 2.5 s of them: who comes later reads a shared page. What lives longer in
  // memory also costs the garbage collector more: 1,024 took a fifth of the time an event takes here.
  ring: { bytes: 512 * KIB, messages: 256 },
  gate: { heldBytes: 64 * KIB, keptBytes: 64 * KIB },
  turnBytes: 4 * MIB,
  unpublishedBytes: 4 * MIB,
  pageBytes: 128 * KIB,
  feedBytes: 2 * MIB,
  lookBytes: 8 * KIB,
  lowWater: 64 * KIB,
  softLimit: 128 * KIB,
  hardLimit: 256 * KIB,
  lingerMs: 30_000,
  pageIdleMs: 10_000,
  reads: 64,
  reachMs: 5_000,
};

/**
 * `maxBackpressure` of a socket. A publish skips a socket over it without a word, so it must hold
 * what a socket may have when a turn begins (the hard limit, and what each of its hubs may have
 * sent without a look) and all that the turn may add: topics, one page, and one frame that began
 * below the mark.
 */
export function maxBackpressure(limits: FanoutLimits): number {
  const unlooked = MAX_SUBSCRIPTIONS * limits.lookBytes;
  return limits.hardLimit + unlooked + limits.turnBytes + limits.pageBytes + 2 * MAX_FRAME_BYTES;
}
