/** What a connection follows: its subscriptions, begun, ended and kept apart. */
import { type CommandOf, MAX_SUBSCRIPTIONS, MAX_WINDOW } from "@throughline/protocol";
import {
  type Effect,
  type EndReason,
  type FrameFault,
  type Open,
  type Scope,
  send,
  stay,
  type Step,
  type SubscribeRequest,
} from "./life.ts";

/** Unsubscribed at once, a subscription leaves its place; what it has set going goes on for a moment. */
export const MAX_STARTING: number = 2 * MAX_SUBSCRIPTIONS;

export function onSubscribe(state: Open, request: SubscribeRequest): Step {
  const refused = subscriptionFault(state, request);
  if (refused) return stay(state, send({ type: "error", ...refused, ...idOf(request.commandId) }));
  const made = state.made + 1;
  const id = `sub_${made}`;
  const subscriptions = new Map(state.subscriptions).set(id, {
    session: request.session,
    run: request.run,
    phase: "starting",
    window: request.window ?? 0,
  });
  const starting = state.starting + 1;
  return stay({ ...state, subscriptions, made, starting }, { do: "attach", id, request });
}

function subscriptionFault(state: Open, request: SubscribeRequest): FrameFault | undefined {
  if (state.subscriptions.size >= MAX_SUBSCRIPTIONS) {
    return {
      code: "too_many_subscriptions",
      message: `this connection has ${MAX_SUBSCRIPTIONS} subscriptions already`,
    };
  }
  if (state.starting >= MAX_STARTING) {
    return {
      code: "rate_limited",
      message: `${MAX_STARTING} subscriptions of this connection are about to begin`,
      retry_after_ms: 1_000,
    };
  }
  let windows = request.window ?? 0;
  for (const [id, other] of state.subscriptions) {
    windows += other.window;
    if (!overlap(request, other)) continue;
    return { code: "already_subscribed", message: `subscription ${id} covers this already` };
  }
  if (windows > MAX_WINDOW) {
    const message = `payload.window: the windows of a connection may come to ${MAX_WINDOW} events together`;
    return { code: "invalid", message };
  }
  return undefined;
}

/** A session covers its runs: an event would come twice. */
function overlap(a: Scope, b: Scope): boolean {
  if (a.session !== b.session) return false;
  return a.run === undefined || b.run === undefined || a.run === b.run;
}

export function onSubscribed(state: Open, id: string): Step {
  const subscription = state.subscriptions.get(id);
  if (subscription === undefined) return stay(state);
  const subscriptions = new Map(state.subscriptions).set(id, { ...subscription, phase: "active" });
  return stay({ ...state, subscriptions });
}

/**
 * Of a subscription that has ended, or has no window, an `ack` says nothing new: its client may not
 * have heard of the end yet, and need not know whether it asked for a window.
 */
export function onAck(state: Open, command: CommandOf<"ack">): Step {
  const { subscription_id: id } = command.payload;
  const subscription = state.subscriptions.get(id);
  if (subscription !== undefined) {
    return subscription.window === 0 ? stay(state) : stay(state, { do: "acknowledge", command });
  }
  if (wasMade(state, id)) return stay(state);
  const message = "this connection never had such a subscription";
  return stay(state, send({ type: "error", code: "not_found", message, id: command.id }));
}

function wasMade({ made }: Open, id: string): boolean {
  const [, number] = /^sub_([1-9]\d{0,15})$/.exec(id) ?? [];
  return number !== undefined && Number(number) <= made;
}

export function onUnsubscribe(state: Open, command: CommandOf<"unsubscribe">): Step {
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

export function onEnded(state: Open, id: string, reason: EndReason): Step {
  if (!state.subscriptions.has(id)) return stay(state);
  return stay(
    without(state, id),
    { do: "detach", id },
    send({ type: "unsubscribed", subscription_id: id, reason }),
  );
}

export function requestOf(command: CommandOf<"subscribe">): SubscribeRequest {
  const { cursor, from, deltas, window } = command.payload;
  return {
    commandId: command.id,
    session: command.session_id,
    run: command.run_id,
    cursor,
    from: from ?? "start",
    deltas: deltas ?? true,
    window,
  };
}

export function without(state: Open, id: string): Open {
  if (!state.subscriptions.has(id)) return state;
  const subscriptions = new Map(state.subscriptions);
  subscriptions.delete(id);
  return { ...state, subscriptions };
}

export function detachAll(state: Open): Effect[] {
  return [...state.subscriptions.keys()].map((id) => ({ do: "detach", id }));
}

function idOf(id: string | undefined): { id?: string } {
  return id === undefined ? {} : { id };
}
