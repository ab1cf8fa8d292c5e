import type { DurableEvent } from "@throughline/protocol";
import type { Delivery } from "./delivery.ts";
import type { RunRef } from "./ids.ts";
import type { RecoveredRun } from "./recover.ts";

/**
 * A run in this worker's hands. Until one of the three ways out is taken, the queue says "in
 * progress" for it and answers owner checks.
 */
export interface RunClaim {
  readonly ref: RunRef;
  readonly agent: string;
  readonly epoch: string;
  /** Stream sequence of `run.queued`. */
  readonly streamSeq: number;
  readonly queued: DurableEvent<"run.queued">;
  /** Nobody has written yet, or the run is carried on from `log`. */
  readonly kind: "fresh" | "takeover";
  readonly log?: RecoveredRun;
  /**
   * Aborted with FencedError when the log shows that another worker has the run: found by the
   * queue after a freeze or an outage, also for a run that has nothing to append.
   */
  readonly signal: AbortSignal;
  /**
   * The terminal is stored. Confirmed by the server; where it does not confirm in time this
   * resolves all the same: whoever gets the job again finds the terminal and acks.
   */
  ack(): Promise<void>;
  /** Lets another worker take the run at once. */
  handBack(): Promise<void>;
  /** The run was lost (FencedError): nothing is said any more, since the token may act on its new owner's delivery. */
  abandon(): void;
}

/** One job in hand. The log is read while it is `deciding`; then it is a claim, or on its way out. */
export interface Hand {
  readonly key: string;
  readonly ref: RunRef;
  readonly agent: string;
  readonly epoch: string;
  readonly streamSeq: number;
  /** The newest one: a run that comes back to its own worker brings a new token. */
  delivery: Delivery;
  phase: "deciding" | "claimed" | "leaving";
  /** Stream sequence of the run's last event when it was claimed (0: none). What follows is ours or a successor's. */
  base: number;
  readonly lost: AbortController;
}

/** Incarnations are apart: a claim on the old one must not stand for the new one. */
export function handKey(ref: RunRef, epoch: string): string {
  return `${ref.tenant}.${ref.session}.${ref.run}.${epoch}`;
}
