/** What an iteration gives. */
import type { EphemeralEvent, RunState } from "@throughline/protocol";
import type { DeliveredEvent, PassedEvent } from "../frame.ts";

/** Something is missing and cannot be had any more: what follows does not continue what was before. */
export interface Gap {
  readonly type: "gap";
  readonly session_id: string;
  /** Of the run that is followed; in a session, of the one run whose beginning is gone. */
  readonly run_id?: string;
  /** What the server says of the cursor that it was given. */
  readonly reason?: "cursor_expired" | "cursor_invalid";
  /** From where it goes on. */
  readonly cursor: string;
}

/** A run's state as of `cursor`, in place of the events up to there. */
export interface RunSnapshot {
  readonly type: "snapshot";
  readonly session_id: string;
  readonly run_id: string;
  readonly cursor: string;
  readonly state?: RunState;
  /** Where to fetch a state that is too large for a frame. */
  readonly state_url?: string;
}

/** Told apart by `type`; all but `gap` and `snapshot` are events of the protocol. */
export type FollowItem = DeliveredEvent | EphemeralEvent | RunSnapshot | Gap;

/** How following came to its end. */
export type Closed =
  | { readonly reason: "run_ended" }
  /** By `close()`. */
  | { readonly reason: "closed" }
  | { readonly reason: "failed"; readonly error: Error };

/** An item on its way to the iterator. */
export type Entry =
  | { readonly kind: "item"; readonly item: FollowItem }
  /** An event of an unknown type: nothing to show, but it counts. */
  | { readonly kind: "passed"; readonly event: PassedEvent };

export const itemEntry = (item: FollowItem): Entry => ({ kind: "item", item });
