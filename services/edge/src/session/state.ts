/**
 * A connection's life as one value, and what each happening makes of it. Pure: the shell
 * (`connection.ts`) owns the socket, the clock and the hubs.
 */
import {
  type Command,
  type CommandOf,
  type ErrorCode,
  MAX_SUBSCRIPTIONS,
} from "@throughline/protocol";
import type { OutgoingFrame } from "./port.ts";

export interface Scope {
  readonly session: string;
  /** Undefined: the whole session. */
  readonly run: string | undefined;
}

export interface Subscription extends Scope {
  /** `starting` until `subscribed` has been sent. */
  readonly phase: "starting" | "active";
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
  /** Commands on their way. */
  readonly pending: number;
  /** Malformed frames, less the commands since. */
  readonly strikes: number;
}

export type Happening =
  | { readonly kind: "command"; readonly command: Command }
  | { readonly kind: "unreadable"; readonly frame: FrameFault }
  /** The connect URL asks for a subscription. */
  | { readonly kind: "subscribe"; readonly request: SubscribeRequest }
  | { readonly kind: "subscribed"; readonly id: string }
  | { readonly kind: "ended"; readonly id: string; readonly reason: EndReason }
  /** Whether the subscription could not begin. */
  | { readonly kind: "refused"; readonly id: string; readonly frame: OutgoingFrame }
  | { readonly kind: "answered"; readonly frame: OutgoingFrame }
  | { readonly kind: "goaway"; readonly reconnectAfterMs: number; readonly reason: string }
  | { readonly kind: "close"; readonly code: number; readonly reason: string }
  | { readonly kind: "gone" };

export type EndReason = "run_ended" | "membership" | "too_slow";

export interface FrameFault {
  readonly code: ErrorCode;
  readonly message: string;
  readonly path?: string;
  readonly id?: string;
}

export interface SubscribeRequest extends Scope {
  /** Of the command; undefined for the connect URL's. */
  readonly commandId: string | undefined;
  readonly cursor: string | undefined;
  readonly from: "start" | "latest" | "snapshot";
  readonly deltas: boolean;
}

export type Effect =
  | { readonly do: "send"; readonly frame: OutgoingFrame }
  | { readonly do: "attach"; readonly id: string; readonly request: SubscribeRequest }
  | { readonly do: "detach"; readonly id: string }
  | { readonly do: "execute"; readonly command: Command }
  | { readonly do: "close"; readonly code: number; readonly reason: string };

export interface Step {
  readonly state: ConnectionState;
  readonly effects: readonly Effect[];
}

/** Commands of one connection on their way at once; a client that sends more than this ahead is not waiting for answers. */
export const MAX_PENDING = 64;
/** Malformed frames in excess of commands after which the connection is closed with 4400. */
export const MAX_STRIKES = 8;

export const OPENED: ConnectionState = {
  phase: "open",
  subscriptions: new Map(),
  made: 0,
  pending: 0,
  strikes: 0,
};

const CLOSED: ConnectionState = { phase: "closed" };

type Open = Exclude<ConnectionState, { phase: "closed" }>;

export function next(state: ConnectionState, happening: Happening): Step {
  if (state.phase === "closed") return { state, effects: [] };
  switch (happening.kind) {
    case "command":
      // A heartbeat costs its sender nothing: it makes up for no frame that could not be read.
      return onCommand(
        happening.command.type === "heartbeat" ? state : lenient(state),
        happening.command,
      );
    case "unreadable":
      return onUnreadable(state, happening.frame);
    case "subscribe":
      return onSubscribe(state, happening.request);
    case "subscribed":
      return onSubscribed(state, happening.id);
    case "ended":
      return onEnded(state, happening.id, happening.reason);
    case "refused":
      return stay(without(state, happening.id), { do: "send", frame: happening.frame });
    case "answered":
      return stay({ ...state, pending: state.pending - 1 }, { do: "send", frame: happening.frame });
    case "goaway":
      return onGoaway(state, happening.reconnectAfterMs, happening.reason);
    case "close":
      return {
        state: CLOSED,
        effects: [
          { do: "close", code: happening.code, reason: happening.reason },
          ...detachAll(state),
        ],
      };
    case "gone":
      return { state: CLOSED, effects: detachAll(state) };
  }
}

function onCommand(state: Open, command: Command): Step {
  switch (command.type) {
    case "heartbeat":
      return stay(state, send({ type: "heartbeat.ack", id: command.id, ts: command.payload.ts }));
    case "ack":
      return stay(state);
    case "subscribe":
      return onSubscribe(state, requestOf(command));
    case "unsubscribe":
      return onUnsubscribe(state, command);
    case "auth.refresh":
      return stay(
        state,
        refuse(command.id, "not_allowed", "the credentials of this connection do not expire"),
      );
    default:
      if (state.pending >= MAX_PENDING) {
        const why = `more than ${MAX_PENDING} commands wait for their answers`;
        return stay(state, refuse(command.id, "rate_limited", why, 1_000));
      }
      return stay({ ...state, pending: state.pending + 1 }, { do: "execute", command });
  }
}

function onUnreadable(state: Open, frame: FrameFault): Step {
  const error = send({ type: "error", ...frame });
  // A command that could be read and is wrong is a fault of one command: closed for it, the client
  // would lose the answers to those behind it.
  if (frame.code !== "malformed") return stay(state, error);
  const strikes = state.strikes + 1;
  if (strikes < MAX_STRIKES) return stay({ ...state, strikes }, error);
  return {
    state: CLOSED,
    effects: [
      error,
      { do: "close", code: 4400, reason: "too many frames that could not be read" },
      ...detachAll(state),
    ],
  };
}

function onSubscribe(state: Open, request: SubscribeRequest): Step {
  const refused = subscriptionFault(state, request);
  if (refused) return stay(state, send({ type: "error", ...refused, ...idOf(request.commandId) }));
  const made = state.made + 1;
  const id = `sub_${made}`;
  const subscriptions = new Map(state.subscriptions).set(id, {
    session: request.session,
    run: request.run,
    phase: "starting",
  });
  return stay({ ...state, subscriptions, made }, { do: "attach", id, request });
}

function subscriptionFault(state: Open, scope: Scope): FrameFault | undefined {
  if (state.subscriptions.size >= MAX_SUBSCRIPTIONS) {
    return {
      code: "too_many_subscriptions",
      message: `this connection has ${MAX_SUBSCRIPTIONS} subscriptions already`,
    };
  }
  for (const [id, other] of state.subscriptions) {
    if (!overlap(scope, other)) continue;
    return { code: "already_subscribed", message: `subscription ${id} covers this already` };
  }
  return undefined;
}

/** A session covers its runs: an event would come twice. */
function overlap(a: Scope, b: Scope): boolean {
  if (a.session !== b.session) return false;
  return a.run === undefined || b.run === undefined || a.run === b.run;
}

function onSubscribed(state: Open, id: string): Step {
  const subscription = state.subscriptions.get(id);
  if (subscription === undefined) return stay(state);
  const subscriptions = new Map(state.subscriptions).set(id, { ...subscription, phase: "active" });
  return stay({ ...state, subscriptions });
}

function onUnsubscribe(state: Open, command: CommandOf<"unsubscribe">): Step {
  const id = command.payload.subscription_id;
  if (!state.subscriptions.has(id)) {
    const message = "this connection has no such subscription";
    return stay(state, send({ type: "error", code: "not_found", message, id: command.id }));
  }
  return stay(
    without(state, id),
    { do: "detach", id },
    send({ type: "unsubscribed", id: command.id, subscription_id: id, reason: "asked" }),
  );
}

function onEnded(state: Open, id: string, reason: EndReason): Step {
  if (!state.subscriptions.has(id)) return stay(state);
  return stay(
    without(state, id),
    { do: "detach", id },
    send({ type: "unsubscribed", subscription_id: id, reason }),
  );
}

function onGoaway(state: Open, reconnectAfterMs: number, reason: string): Step {
  if (state.phase === "leaving") return stay(state);
  return stay(
    { ...state, phase: "leaving" },
    send({ type: "goaway", reconnect_after_ms: reconnectAfterMs, reason }),
  );
}

function requestOf(command: CommandOf<"subscribe">): SubscribeRequest {
  const { cursor, from, deltas } = command.payload;
  return {
    commandId: command.id,
    session: command.session_id,
    run: command.run_id,
    cursor,
    from: from ?? "start",
    deltas: deltas ?? true,
  };
}

function lenient(state: Open): Open {
  return state.strikes === 0 ? state : { ...state, strikes: state.strikes - 1 };
}

function without(state: Open, id: string): Open {
  if (!state.subscriptions.has(id)) return state;
  const subscriptions = new Map(state.subscriptions);
  subscriptions.delete(id);
  return { ...state, subscriptions };
}

function detachAll(state: Open): Effect[] {
  return [...state.subscriptions.keys()].map((id) => ({ do: "detach", id }));
}

function refuse(id: string, code: ErrorCode, message: string, retryAfterMs?: number): Effect {
  return send({
    type: "command.rejected",
    id,
    code,
    message,
    ...(retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs }),
  });
}

function idOf(id: string | undefined): { id?: string } {
  return id === undefined ? {} : { id };
}

function send(frame: OutgoingFrame): Effect {
  return { do: "send", frame };
}

function stay(state: ConnectionState, ...effects: Effect[]): Step {
  return { state, effects };
}
