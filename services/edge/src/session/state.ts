/**
 * A connection's life as one value, and what each happening makes of it. Pure: the shell
 * (`connection.ts`) owns the socket, the clock and the hubs.
 */
import { type Command, type ErrorCode, MAX_FRAME_BYTES } from "@throughline/protocol";
import {
  detachAll,
  onAck,
  onEnded,
  onSubscribe,
  onSubscribed,
  onUnsubscribe,
  requestOf,
  without,
} from "./followed.ts";
import {
  type ConnectionState,
  type Effect,
  type FrameFault,
  type Happening,
  type Open,
  send,
  stay,
  type Step,
} from "./life.ts";
import type { OutgoingFrame } from "./port.ts";

/** Commands of one connection on their way at once; a client that sends more than this ahead is not waiting for answers. */
export const MAX_PENDING = 64;
/** And what they may hold in memory meanwhile: eight frames of the largest kind. */
export const MAX_PENDING_BYTES: number = 8 * MAX_FRAME_BYTES;
/** Malformed frames in excess of commands after which the connection is closed with 4400. */
export const MAX_STRIKES = 8;

export const OPENED: ConnectionState = {
  phase: "open",
  subscriptions: new Map(),
  made: 0,
  starting: 0,
  pending: 0,
  pendingBytes: 0,
  strikes: 0,
};

const CLOSED: ConnectionState = { phase: "closed" };

export function next(state: ConnectionState, happening: Happening): Step {
  if (state.phase === "closed") return { state, effects: [] };
  switch (happening.kind) {
    case "command":
      // A heartbeat costs its sender nothing: it makes up for no frame that could not be read.
      return onCommand(
        happening.command.type === "heartbeat" ? state : lenient(state),
        happening.command,
        happening.bytes,
      );
    case "unreadable":
      return onUnreadable(state, happening.frame);
    case "subscribe":
      return onSubscribe(state, happening.request);
    case "subscribed":
      return onSubscribed(state, happening.id);
    case "begun":
      return stay({ ...state, starting: state.starting - 1 });
    case "ended":
      return onEnded(state, happening.id, happening.reason);
    case "refused":
      return stay(without(state, happening.id), { do: "send", frame: happening.frame });
    case "answered":
      return onAnswered(state, happening.frame, happening.bytes);
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

function onCommand(state: Open, command: Command, bytes: number): Step {
  switch (command.type) {
    case "heartbeat":
      return stay(state, send({ type: "heartbeat.ack", id: command.id, ts: command.payload.ts }));
    case "ack":
      return onAck(state, command);
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
      return onEffective(state, command, bytes);
  }
}

/** A command for the log. */
function onEffective(state: Open, command: Command, bytes: number): Step {
  const pending = state.pending + 1;
  const pendingBytes = state.pendingBytes + bytes;
  const isOver = pending > MAX_PENDING || (state.pending > 0 && pendingBytes > MAX_PENDING_BYTES);
  if (isOver) {
    const why = `commands that wait for their answers: at most ${MAX_PENDING}, and ${MAX_PENDING_BYTES} bytes`;
    return stay(state, refuse(command.id, "rate_limited", why, 1_000));
  }
  return stay({ ...state, pending, pendingBytes }, { do: "execute", command, bytes });
}

function onAnswered(state: Open, frame: OutgoingFrame, bytes: number): Step {
  const pending = state.pending - 1;
  const pendingBytes = state.pendingBytes - bytes;
  return stay({ ...state, pending, pendingBytes }, send(frame));
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

function onGoaway(state: Open, reconnectAfterMs: number, reason: string): Step {
  if (state.phase === "leaving") return stay(state);
  return stay(
    { ...state, phase: "leaving" },
    send({ type: "goaway", reconnect_after_ms: reconnectAfterMs, reason }),
  );
}

function lenient(state: Open): Open {
  return state.strikes === 0 ? state : { ...state, strikes: state.strikes - 1 };
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
