import type { LogFilter } from "@throughline/broker";
import { type Cursor, cursorTag, formatCursor, parseCursor } from "@throughline/protocol";
import { authorise } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import { type Refusal, refusal, refusalOf } from "../commands/outcome.ts";
import type { SessionRecords } from "../commands/sessions.ts";
import { Attachment } from "../fanout/attach.ts";
import type { Hub } from "../fanout/hub.ts";
import type { Hubs } from "../fanout/hubs.ts";
import type { FanoutNode } from "../fanout/node.ts";
import type { Subscriber } from "../fanout/place.ts";
import { readAfter } from "../fanout/position.ts";
import { findStart, type Start, type StateSources } from "../fanout/start.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Log } from "../log.ts";
import type { OutgoingFrame } from "./port.ts";
import type { SubscribeRequest } from "./life.ts";

export interface SubscribeServices extends StateSources {
  readonly node: FanoutNode;
  readonly hubs: Hubs;
  readonly sessions: SessionRecords;
  /** Subscriptions on their way to be attached, node-wide. */
  readonly attaches: Slots;
  readonly log: Log;
}

export type Begun =
  | { readonly kind: "attached"; readonly attachment: Attachment }
  /** Only a snapshot is left of the run: all has been said. */
  | { readonly kind: "ended" }
  /** Asked for with `ifOver: "tell"`: the run has ended, and the cursor is behind its end. Nothing was said. */
  | { readonly kind: "over" }
  /** The client went or unsubscribed meanwhile. */
  | { readonly kind: "unwanted" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/**
 * Begins a subscription: authorise → hub → where to start → `subscribed`, attach. The last two are
 * one synchronous step; snapshots are the first that the attachment sends. Never throws.
 */
export async function subscribe(
  services: SubscribeServices,
  principal: Principal,
  request: SubscribeRequest,
  subscriber: Subscriber,
  isWanted: () => boolean,
  { ifOver = "follow" }: SubscribeOptions = {},
): Promise<Begun> {
  const cursor = request.cursor === undefined ? undefined : parseCursor(request.cursor);
  if (request.cursor !== undefined && cursor === undefined) {
    return refused(refusal("invalid", "payload.cursor: is no cursor of this protocol"));
  }
  if ((await services.attaches.take()) === "full") {
    return refused(refusal("overloaded", "too many subscriptions begin at once", 2_000));
  }
  try {
    if (!isWanted()) return { kind: "unwanted" };
    return await begin(services, principal, { ...request, cursor, ifOver }, subscriber, isWanted);
  } catch (error) {
    const because = refusalOf(error);
    if (because.code === "internal") {
      services.log.error({ err: error, session: request.session }, "a subscription failed");
    }
    return refused(because);
  } finally {
    services.attaches.give();
  }
}

export interface SubscribeOptions {
  /** A run's end that the client has already: begin all the same, and say that it is over, or only tell. */
  readonly ifOver?: "follow" | "tell";
}

type Parsed = Omit<SubscribeRequest, "cursor"> &
  Required<SubscribeOptions> & { readonly cursor: Cursor | undefined };

async function begin(
  services: SubscribeServices,
  principal: Principal,
  request: Parsed,
  subscriber: Subscriber,
  isWanted: () => boolean,
): Promise<Begun> {
  const { tenant } = principal;
  const { session, run } = request;
  const record = await services.sessions.get({ tenant, session });
  const verdict = authorise(principal, "read", record);
  if (!verdict.ok) return refused(refusal(verdict.code, verdict.message));
  const filter: LogFilter =
    run === undefined
      ? { kind: "session", tenant, session }
      : { kind: "run", tenant, session, run };
  const hub = await services.hubs.acquire(filter);
  if (hub === undefined) return beginWithoutLog(services, tenant, request, subscriber, isWanted);
  try {
    const start = await findStart(services.node, hub, services, request);
    if (!isWanted()) return { kind: "unwanted" };
    if (request.ifOver === "tell" && hasEnd(hub, start)) return { kind: "over" };
    return attach(services.node, hub, request, start, subscriber);
  } finally {
    // The attachment holds the hub by itself.
    hub.release();
  }
}

function hasEnd(hub: Hub, { mode, position }: Start): boolean {
  return mode === "replay" && hub.isEnded && readAfter(position) >= hub.published;
}

function attach(
  node: FanoutNode,
  hub: Hub,
  request: Parsed,
  start: Start,
  subscriber: Subscriber,
): Begun {
  subscriber.send(subscribedFrame(request, start, subscriber.subscriptionId));
  return { kind: "attached", attachment: new Attachment(node, hub, subscriber, start) };
}

/** Snapshots outlive events: of an old run there may be only its end state. */
async function beginWithoutLog(
  services: SubscribeServices,
  tenant: string,
  request: Parsed,
  subscriber: Subscriber,
  isWanted: () => boolean,
): Promise<Begun> {
  const { session, run } = request;
  const snapshot =
    run === undefined
      ? undefined
      : await services.snapshots.read({ tenant, session, run }, "leader");
  if (run === undefined || snapshot === undefined) {
    return refused(refusal("not_found", "the session has no such run"));
  }
  if (!isWanted()) return { kind: "unwanted" };
  const { seq, streamSeq, epoch, state } = snapshot;
  const cursor = formatCursor({ seq, streamSeq, tag: cursorTag(run, epoch) });
  const hasAll = request.cursor !== undefined && formatCursor(request.cursor) === cursor;
  if (request.ifOver === "tell" && hasAll) return { kind: "over" };
  const { subscriptionId: id } = subscriber;
  const isAsked = request.cursor === undefined && request.from === "snapshot";
  const lost = isAsked ? {} : ({ reason: "cursor_expired" } as const);
  const start = { cursor, recovered: isAsked, mode: "snapshot", ...lost } as const;
  subscriber.socket.cork(() => {
    subscriber.send(subscribedFrame(request, start, id));
    subscriber.sendSnapshot({ run, cursor, json: JSON.stringify(state) });
    subscriber.send({ type: "caught_up", subscription_id: id, cursor });
  });
  return { kind: "ended" };
}

function subscribedFrame(
  request: Parsed,
  start: Pick<Start, "recovered" | "mode" | "reason" | "cursor">,
  subscriptionId: string,
): OutgoingFrame {
  return {
    type: "subscribed",
    ...(request.commandId === undefined ? {} : { id: request.commandId }),
    subscription_id: subscriptionId,
    session_id: request.session,
    ...(request.run === undefined ? {} : { run_id: request.run }),
    recovered: start.recovered,
    mode: start.mode,
    ...(start.reason === undefined ? {} : { reason: start.reason }),
    cursor: start.cursor,
  };
}

function refused(because: Refusal): Begun {
  return { kind: "refused", refusal: because };
}
