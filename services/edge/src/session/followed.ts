/** What a connection follows: its subscriptions, begun, ended and kept apart. */
import { type CommandOf, MAX_SUBSCRIPTIONS } from "@throughline/protocol";
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

export function onSubscribe(state: Open, request: SubscribeRequest): Step {
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

export function onSubscribed(state: Open, id: string): Step {
  const subscription = state.subscriptions.get(id);
  if (subscription === undefined) return stay(state);
  const subscriptions = new Map(state.subscriptions).set(id, { ...subscription, phase: "active" });
  return stay({ ...state, subscriptions });
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
