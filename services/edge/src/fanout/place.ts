import type { OutgoingFrame, SendResult, Socket } from "../session/port.ts";
import type { Entry } from "./frame.ts";
import type { Broken } from "./outlet.ts";
import type { Page } from "./pages.ts";
import type { Position } from "./position.ts";
import type { RunSnapshot } from "./run-snapshot.ts";

/**
 * How a client is attached to a hub, in one value.
 *
 * `live`: subscribed to the hub's topics; its place is the hub's own.
 * `paced`: off the topics, fed from its position as fast as its socket drains and its credit
 * allows: catching up (`start`), having been too slow (`lag`), or because it asked for a `window`;
 * such a client has caught up then, and never goes live. `waits` says what brings the next step.
 */
export type Place =
  | { readonly at: "live"; readonly deltas: "on" | "withheld" | "unwanted" }
  | {
      readonly at: "paced";
      since: "start" | "lag" | "window";
      position: Position;
      cursor: string;
      waits: "turn" | "socket" | "credit" | "log" | "hub" | "retry";
      /** States that it begins with, not sent yet: a session's may be more than a socket takes at once. */
      readonly snapshots: RunSnapshot[];
      /** What was read for it, for its next step only. */
      page: Page | undefined;
      /** Repaired messages from before its position: sent first. */
      readonly missed: Entry[];
      /** The last delta that a client with a window was shown, by its order. */
      shown: number;
    }
  | { readonly at: "detached" };

export type Paced = Extract<Place, { at: "paced" }>;

/** The subscription that an attachment serves. */
export interface Subscriber {
  readonly socket: Socket;
  readonly subscriptionId: string;
  readonly wantsDeltas: boolean;
  /** Events that may be unacknowledged; undefined: as many as its socket takes. */
  readonly window: number | undefined;
  send(frame: OutgoingFrame): SendResult;
  sendSnapshot(snapshot: RunSnapshot): { readonly result: SendResult; readonly bytes: number };
  /** The run's terminal event has been sent; the attachment is gone. */
  runEnded(): void;
  /** What the client holds is not known any more, or cannot be followed up: it must come back with its cursor. */
  broken(why: Broken): void;
  /** The hub cannot go on. */
  lost(error: Error): void;
}
