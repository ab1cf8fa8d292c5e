/**
 * Where a subscription stands on the wire, as one value; every step of it a pure function.
 *
 * A subscription outlives its connections, and it is sometimes asked anew on a connection that stays
 * (after a hole, or for a slow consumer). The server takes no second subscription to the same run, so
 * "anew" is: unsubscribe, wait for the answer, subscribe. Between the two nothing that arrives counts;
 * which is why there is exactly one state, `on`, in which events are taken.
 */
export type WireState =
  /** Not wanted, and the server holds nothing. */
  | { readonly name: "resting" }
  /** Wanted; there is no open connection. */
  | { readonly name: "waiting" }
  /** Wanted; asked again when the timer fires. */
  | { readonly name: "pausing" }
  /** `subscribe` is sent. `next`: what to do when it is answered. */
  | { readonly name: "asking"; readonly next: "stay" | "ask" | "rest" }
  | { readonly name: "on" }
  /** `unsubscribe` is sent. */
  | { readonly name: "leaving"; readonly next: "ask" | "pause" | "rest" };

export type WireEvent =
  /** The consumer wants it on. */
  | "want"
  /** The consumer wants it off. */
  | "rest"
  /** Start again from where the consumer stands now. */
  | "again"
  /** The same, but not at once: the last time did not help. */
  | "again_later"
  | "up"
  | "down"
  | "subscribed"
  /** Refused for now. */
  | "refused"
  /** Refused for good. */
  | "denied"
  | "unsubscribed"
  | "timer";

export type WireEffect =
  | "send_subscribe"
  | "send_unsubscribe"
  | "start_timer"
  | "stop_timer"
  /** Nothing of it is left on this connection. */
  | "released";

export interface WireStep {
  readonly state: WireState;
  readonly effects: readonly WireEffect[];
}

type WireKey =
  | "resting"
  | "waiting"
  | "pausing"
  | "on"
  | `asking/${"stay" | "ask" | "rest"}`
  | `leaving/${"ask" | "pause" | "rest"}`;
type Entry = (up: boolean) => WireStep;
type Row = Readonly<Record<WireEvent, Entry>>;

const to =
  (state: WireState, ...effects: WireEffect[]): Entry =>
  () => ({ state, effects });

const RESTING: WireState = { name: "resting" };
const WAITING: WireState = { name: "waiting" };
const PAUSING: WireState = { name: "pausing" };
const ON: WireState = { name: "on" };
const asking = (next: "stay" | "ask" | "rest"): WireState => ({ name: "asking", next });
const leaving = (next: "ask" | "pause" | "rest"): WireState => ({ name: "leaving", next });

const ask: Entry = (up) =>
  up ? { state: asking("stay"), effects: ["send_subscribe"] } : { state: WAITING, effects: [] };
const askNow: Entry = (up) => {
  const step = ask(up);
  return { state: step.state, effects: ["stop_timer", ...step.effects] };
};
const release = to(RESTING, "released");
const pause = to(PAUSING, "start_timer");

/** What an answer nobody waits for does: nothing. The server may send `unsubscribed` at any time. */
function row(state: WireState, entries: Partial<Record<WireEvent, Entry>>): Row {
  const stay = to(state);
  return {
    want: stay,
    rest: stay,
    again: stay,
    again_later: stay,
    up: stay,
    down: stay,
    subscribed: stay,
    refused: stay,
    denied: stay,
    unsubscribed: stay,
    timer: stay,
    ...entries,
  };
}

/** Total in both directions: by state, and in each row by event. */
const TABLE: Readonly<Record<WireKey, Row>> = {
  resting: row(RESTING, { want: ask, again: ask, again_later: pause }),
  waiting: row(WAITING, { up: ask, rest: release, denied: release }),
  pausing: row(PAUSING, {
    timer: ask,
    again: askNow,
    down: to(WAITING, "stop_timer"),
    rest: to(RESTING, "stop_timer", "released"),
    denied: to(RESTING, "stop_timer", "released"),
  }),
  "asking/stay": row(asking("stay"), {
    subscribed: to(ON),
    refused: pause,
    denied: release,
    down: to(WAITING),
    again: to(asking("ask")),
    again_later: to(asking("ask")),
    rest: to(asking("rest")),
  }),
  "asking/ask": row(asking("ask"), {
    subscribed: to(leaving("ask"), "send_unsubscribe"),
    refused: pause,
    denied: release,
    down: to(WAITING),
    rest: to(asking("rest")),
  }),
  "asking/rest": row(asking("rest"), {
    subscribed: to(leaving("rest"), "send_unsubscribe"),
    refused: release,
    denied: release,
    down: release,
    // The position may have changed since, so what was asked is not what is wanted now.
    want: to(asking("ask")),
    again: to(asking("ask")),
    again_later: to(asking("ask")),
  }),
  on: row(ON, {
    again: to(leaving("ask"), "send_unsubscribe"),
    again_later: to(leaving("pause"), "send_unsubscribe"),
    rest: to(leaving("rest"), "send_unsubscribe"),
    down: to(WAITING),
    unsubscribed: pause,
    denied: release,
  }),
  "leaving/ask": row(leaving("ask"), {
    unsubscribed: ask,
    denied: ask,
    refused: ask,
    down: to(WAITING),
    rest: to(leaving("rest")),
  }),
  "leaving/pause": row(leaving("pause"), {
    unsubscribed: pause,
    denied: pause,
    refused: pause,
    down: to(WAITING),
    again: to(leaving("ask")),
    rest: to(leaving("rest")),
  }),
  "leaving/rest": row(leaving("rest"), {
    unsubscribed: release,
    denied: release,
    refused: release,
    down: release,
    want: to(leaving("ask")),
    again: to(leaving("ask")),
    again_later: to(leaving("ask")),
  }),
};

export const initialWire: WireState = RESTING;

/** @param up whether the connection is open, after this event */
export function wireTransition(state: WireState, event: WireEvent, up: boolean): WireStep {
  return TABLE[keyOf(state)][event](up);
}

function keyOf(state: WireState): WireKey {
  if (state.name === "asking") return `asking/${state.next}`;
  if (state.name === "leaving") return `leaving/${state.next}`;
  return state.name;
}
