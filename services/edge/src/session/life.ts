/** The words in which a connection's life is told: what it is, what happens to it, what is to be done. */
import type { Command, CommandOf, ErrorCode } from "@throughline/protocol";
import type { OutgoingFrame } from "./port.ts";

export interface Scope {
  readonly session: string;
  /** Undefined: the whole session. */
  readonly run: string | undefined;
}

export interface Subscription extends Scope {
  /** `starting` until `subscribed` has been sent. */
  readonly phase: "starting" | "active";
  /** 0: none. */
  readonly window: number;
}

/** `leaving`: told to go, and soon closed; commands are still taken. */
export type ConnectionState =
  | (Serving & { readonly phase: "open" })
  | (Serving & { readonly phase: "leaving" })
  | { readonly phase: "closed" };

interface Serving {
  readonly subscriptions: ReadonlyMap<string, Subscription>;
  /** Subscriptions made so far: their ids count up. */
  readonly made: number;
  /** Subscriptions on their way to be attached, also those that are not wanted any more. */
  readonly starting: number;
  /** Commands on their way, and the bytes of their frames. */
  readonly pending: number;
  readonly pendingBytes: number;
  /** Malformed frames, less the commands since. */
  readonly strikes: number;
}

export type Happening =
  | { readonly kind: "command"; readonly command: Command; readonly bytes: number }
  | { readonly kind: "unreadable"; readonly frame: FrameFault }
  /** The connect URL asks for a subscription. */
  | { readonly kind: "subscribe"; readonly request: SubscribeRequest }
  | { readonly kind: "subscribed"; readonly id: string }
  /** An attempt to attach is over, whatever came of it. */
  | { readonly kind: "begun" }
  | { readonly kind: "ended"; readonly id: string; readonly reason: EndReason }
  /** Whether the subscription could not begin. */
  | { readonly kind: "refused"; readonly id: string; readonly frame: OutgoingFrame }
  | { readonly kind: "answered"; readonly frame: OutgoingFrame; readonly bytes: number }
  | { readonly kind: "goaway"; readonly reconnectAfterMs: number; readonly reason: string }
  | { readonly kind: "close"; readonly code: number; readonly reason: string }
  | { readonly kind: "gone" };

export type EndReason = "run_ended" | "membership" | "too_slow";

export interface FrameFault {
  readonly code: ErrorCode;
  readonly message: string;
  readonly path?: string;
  readonly id?: string;
  readonly retry_after_ms?: number;
}

export interface SubscribeRequest extends Scope {
  /** Of the command; undefined for the connect URL's. */
  readonly commandId: string | undefined;
  readonly cursor: string | undefined;
  readonly from: "start" | "latest" | "snapshot";
  readonly deltas: boolean;
  /** Events that may be unacknowledged; undefined: no limit but the socket's. */
  readonly window: number | undefined;
}

export type Effect =
  | { readonly do: "send"; readonly frame: OutgoingFrame }
  | { readonly do: "attach"; readonly id: string; readonly request: SubscribeRequest }
  | { readonly do: "detach"; readonly id: string }
  | { readonly do: "acknowledge"; readonly command: CommandOf<"ack"> }
  | { readonly do: "execute"; readonly command: Command; readonly bytes: number }
  | { readonly do: "close"; readonly code: number; readonly reason: string };

export interface Step {
  readonly state: ConnectionState;
  readonly effects: readonly Effect[];
}

/** A connection that something can still happen to. */
export type Open = Exclude<ConnectionState, { phase: "closed" }>;

export function stay(state: ConnectionState, ...effects: Effect[]): Step {
  return { state, effects };
}

export function send(frame: OutgoingFrame): Effect {
  return { do: "send", frame };
}
