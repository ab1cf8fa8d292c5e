/**
 * A connection's life as one value, and every step of it as a pure function.
 *
 *   idle ─start→ authorising ─token→ connecting ─welcome→ open
 *                    ↑                   │ lost            │ lost · silence · goaway
 *                    └───── due ──── waiting ←─────────────┘        any ─stop→ closed
 *
 * The shell (connection.ts) owns the socket and one timer, set to the state's `due`. Time and chance
 * are passed in, so each rule of SPEC.md is tested without either.
 */
import { closeAdvice } from "@throughline/protocol";
import { type BackoffOptions, backoff } from "./backoff.ts";

/** Why a connection is closed for good. */
export type ClosedFor =
  | { readonly kind: "stopped" }
  /** The server's close code says not to come back, e.g. 4403. */
  | { readonly kind: "refused"; readonly code: number; readonly reason: string }
  /** No attempt can succeed with what the client was given, e.g. a token that no subprotocol may hold. */
  | { readonly kind: "unusable"; readonly error: Error };

/** What the last attempt came to grief on. */
export type Failure =
  /** 1006 where nothing more is known. */
  | { readonly kind: "lost"; readonly code: number; readonly reason: string }
  | { readonly kind: "no_token"; readonly error: unknown }
  /** No welcome, no answer to heartbeats, or none to what was asked. */
  | { readonly kind: "silence" }
  /** The server asked for it. */
  | { readonly kind: "goaway" };

interface Trying {
  /** Attempts that failed since the connection was last open for a while. */
  readonly attempt: number;
  /** Index into the list of URLs. */
  readonly url: number;
}

interface Timed {
  /** When the shell has to say `due`, on the clock's scale. */
  readonly due: number;
}

export type ConnectionState =
  | { readonly name: "idle" }
  /** The token has been asked for. */
  | ({ readonly name: "authorising" } & Trying & Timed)
  /** A socket is being opened; lasts until `welcome`. */
  | ({ readonly name: "connecting" } & Trying & Timed)
  | ({
      readonly name: "open";
      readonly since: number;
      readonly beatMs: number;
      /** When the last heartbeat was sent, and how many before it stayed without any answer. */
      readonly beatAt: number;
      readonly missed: number;
      /** After a goaway: when to leave. */
      readonly leaveAt?: number;
    } & Trying &
      Timed)
  | ({ readonly name: "waiting"; readonly after: Failure } & Trying & Timed)
  | { readonly name: "closed"; readonly cause: ClosedFor };

export type ConnectionEvent =
  | { readonly type: "start" }
  | { readonly type: "token" }
  | { readonly type: "token_failed"; readonly error: unknown }
  | { readonly type: "welcome"; readonly beatMs: number }
  | { readonly type: "goaway"; readonly afterMs: number }
  /** The socket closed, or could not be opened (1006 where nothing more is known). */
  | { readonly type: "lost"; readonly code: number; readonly reason: string }
  /** The socket cannot even be constructed. */
  | { readonly type: "unusable"; readonly error: Error }
  /** The shell gives the connection up: what it was asked has not been answered. */
  | { readonly type: "abandon" }
  /** The state's time has come. `heardAt`: when the last frame came in. */
  | { readonly type: "due"; readonly heardAt: number }
  | { readonly type: "stop" };

export type ConnectionEffect =
  | "fetch_token"
  | "open_socket"
  | "close_socket"
  | "send_heartbeat"
  /** Commands and subscriptions may go out. */
  | "up"
  /** What was sent and not answered has to be sent again. */
  | "down"
  | "ended";

export interface LifecycleOptions extends BackoffOptions {
  urls: number;
  /** A fixed token cannot become valid again, so 4401 is final. */
  fixedToken: boolean;
}

export interface Circumstances {
  readonly now: number;
  /** In [0, 1). */
  readonly random: number;
  readonly options: LifecycleOptions;
}

export interface Step {
  readonly state: ConnectionState;
  readonly effects: readonly ConnectionEffect[];
}

/** Milliseconds. A SYN that nobody answers would else be waited for for minutes. */
const CONNECT_TIMEOUT_MS = 10_000;
/** A connection that lived this long shows that the server is well: the next wait starts small again. */
const SETTLED_MS = 5_000;
const MISSED_LIMIT = 2;

const SILENCE: Failure = { kind: "silence" };
const TOKEN_TIMEOUT = new Error(`the token did not come within ${CONNECT_TIMEOUT_MS} ms`);

type StateOf<N extends ConnectionState["name"]> = Extract<ConnectionState, { name: N }>;
type EventOf<T extends ConnectionEvent["type"]> = Extract<ConnectionEvent, { type: T }>;
type Handler<N extends ConnectionState["name"], T extends ConnectionEvent["type"]> = (
  state: StateOf<N>,
  event: EventOf<T>,
  at: Circumstances,
) => Step;
type Table = {
  readonly [N in ConnectionState["name"]]: {
    readonly [T in ConnectionEvent["type"]]: Handler<N, T>;
  };
};

const stay = (state: ConnectionState): Step => ({ state, effects: [] });

/** Total: the compiler refuses a table in which a state and an event have no entry. */
const TABLE: Table = {
  idle: {
    start: (_state, _event, at) => authorise({ attempt: 0, url: 0 }, at, []),
    token: stay,
    token_failed: stay,
    welcome: stay,
    goaway: stay,
    lost: stay,
    unusable: stay,
    abandon: stay,
    due: stay,
    stop: () => end({ kind: "stopped" }, []),
  },
  authorising: {
    start: stay,
    token: (state, _event, at) => ({
      state: { ...trying(state), name: "connecting", due: at.now + CONNECT_TIMEOUT_MS },
      effects: ["open_socket"],
    }),
    token_failed: (state, { error }, at) =>
      wait(failed(state), { kind: "no_token", error }, "backoff", at, []),
    welcome: stay,
    goaway: stay,
    lost: stay,
    unusable: stay,
    abandon: stay,
    due: (state, _event, at) =>
      wait(failed(state), { kind: "no_token", error: TOKEN_TIMEOUT }, "backoff", at, []),
    stop: () => end({ kind: "stopped" }, []),
  },
  connecting: {
    start: stay,
    token: stay,
    token_failed: stay,
    welcome: (state, event, at) => {
      const { beatMs } = event;
      return {
        state: {
          ...trying(state),
          name: "open",
          since: at.now,
          beatMs,
          beatAt: at.now,
          missed: 0,
          due: at.now + beatMs,
        },
        effects: ["up"],
      };
    },
    goaway: stay,
    lost: (state, event, at) => lose(state, event, at, []),
    unusable: (_state, event) => end({ kind: "unusable", error: event.error }, []),
    abandon: stay,
    due: (state, _event, at) => wait(failed(next(state, at)), SILENCE, "now", at, ["close_socket"]),
    stop: () => end({ kind: "stopped" }, ["close_socket"]),
  },
  open: {
    start: stay,
    token: stay,
    token_failed: stay,
    welcome: stay,
    goaway: (state, event, at) => {
      const leaveAt = at.now + Math.max(0, event.afterMs);
      return { state: { ...state, leaveAt, due: Math.min(state.due, leaveAt) }, effects: [] };
    },
    lost: (state, event, at) => lose(state, event, at, ["down"]),
    unusable: stay,
    abandon: (state, _event, at) => leave(state, SILENCE, at),
    due: (state, event, at) => {
      if (state.leaveAt !== undefined && at.now >= state.leaveAt)
        return leave(state, { kind: "goaway" }, at);
      const answered = event.heardAt >= state.beatAt;
      const missed = answered ? 0 : state.missed + 1;
      if (missed >= MISSED_LIMIT) return leave(state, SILENCE, at);
      const due = Math.min(at.now + state.beatMs, state.leaveAt ?? Number.POSITIVE_INFINITY);
      return { state: { ...state, missed, beatAt: at.now, due }, effects: ["send_heartbeat"] };
    },
    stop: () => end({ kind: "stopped" }, ["close_socket", "down"]),
  },
  waiting: {
    start: stay,
    token: stay,
    token_failed: stay,
    welcome: stay,
    goaway: stay,
    lost: stay,
    unusable: stay,
    abandon: stay,
    due: (state, _event, at) => authorise(trying(state), at, []),
    stop: () => end({ kind: "stopped" }, []),
  },
  closed: {
    start: stay,
    token: stay,
    token_failed: stay,
    welcome: stay,
    goaway: stay,
    lost: stay,
    unusable: stay,
    abandon: stay,
    due: stay,
    stop: stay,
  },
};

export function transition(
  state: ConnectionState,
  event: ConnectionEvent,
  at: Circumstances,
): Step {
  // The table is keyed by exactly these two names; TypeScript cannot follow that through the lookup.
  const handler = TABLE[state.name][event.type] as Handler<
    ConnectionState["name"],
    ConnectionEvent["type"]
  >;
  return handler(state, event, at);
}

function authorise(state: Trying, at: Circumstances, effects: ConnectionEffect[]): Step {
  return {
    state: { ...state, name: "authorising", due: at.now + CONNECT_TIMEOUT_MS },
    effects: [...effects, "fetch_token"],
  };
}

function lose(
  state: StateOf<"connecting" | "open">,
  event: EventOf<"lost">,
  at: Circumstances,
  effects: ConnectionEffect[],
): Step {
  const advice = closeAdvice(event.code);
  if (advice === "never" || (advice === "refresh" && at.options.fixedToken))
    return end({ kind: "refused", code: event.code, reason: event.reason }, effects);
  const { code, reason } = event;
  const after: Failure = { kind: "lost", code, reason };
  return wait(next(counted(state, at), at), after, advice, at, effects, leaveAtOf(state));
}

/** Leaves a socket that is of no more use; its close event is not waited for, it may never come. */
function leave(state: StateOf<"open">, after: Failure, at: Circumstances): Step {
  return wait(next(counted(state, at), at), after, "now", at, ["close_socket", "down"]);
}

function wait(
  state: Trying,
  after: Failure,
  advice: "now" | "backoff" | "refresh",
  at: Circumstances,
  effects: ConnectionEffect[],
  notBefore: number = at.now,
): Step {
  // The attempt that is waited for is the one after those that failed, so the first waits least.
  const delay = backoff(advice, Math.max(0, state.attempt - 1), at.random, at.options);
  return {
    state: { ...trying(state), name: "waiting", after, due: Math.max(at.now, notBefore) + delay },
    effects,
  };
}

function end(reason: ClosedFor, effects: ConnectionEffect[]): Step {
  return { state: { name: "closed", cause: reason }, effects: [...effects, "ended"] };
}

function leaveAtOf(state: StateOf<"connecting" | "open">): number | undefined {
  return state.name === "open" ? state.leaveAt : undefined;
}

const trying = ({ attempt, url }: Trying): Trying => ({ attempt, url });
const failed = ({ attempt, url }: Trying): Trying => ({ attempt: attempt + 1, url });

/** Whatever was wrong with this node, the next one may not have it. */
const next = ({ attempt, url }: Trying, at: Circumstances): Trying => ({
  attempt,
  url: (url + 1) % at.options.urls,
});

function counted(state: StateOf<"connecting" | "open">, at: Circumstances): Trying {
  const settled = state.name === "open" && at.now - state.since >= SETTLED_MS;
  return settled ? { ...trying(state), attempt: 1 } : failed(state);
}
