/*
 * Telling an edge's frames apart without a schema library: this runs in browsers, and what an edge sends
 * needs sorting, not suspicion. The envelope is checked; the payloads are the writer's word.
 */
import type { ControlFrame, ControlType } from "./control/catalogue.ts";
import { isDurableType, isEphemeralType } from "./event-kinds.ts";
import type { DurableEvent, EphemeralEvent, UnknownEvent } from "./events/catalogue.ts";

/** What came. `unknown` is of a newer version, to be passed over; `malformed` is no frame at all. */
export type IncomingFrame =
  | { readonly kind: "durable"; readonly event: DurableEvent }
  | { readonly kind: "ephemeral"; readonly event: EphemeralEvent }
  | { readonly kind: "control"; readonly frame: ControlFrame }
  | { readonly kind: "unknown"; readonly event?: UnknownEvent }
  | { readonly kind: "malformed"; readonly problem: string };

const CONTROL = {
  welcome: true,
  "session.created": true,
  subscribed: true,
  unsubscribed: true,
  snapshot: true,
  caught_up: true,
  lagging: true,
  recovered: true,
  "command.accepted": true,
  "command.rejected": true,
  heartbeat: true,
  "heartbeat.ack": true,
  goaway: true,
  "auth.expiring": true,
  "auth.refreshed": true,
  error: true,
} as const satisfies Record<ControlType, true>;

type Fields = Readonly<Record<string, unknown>> & { readonly type: string };

/**
 * Sorts one frame. An event is what has a `payload`; a durable one also has a `seq`. That is how the two
 * kinds of `command.rejected` differ: the worker's verdict is an event, the edge's refusal a control frame.
 */
export function readFrame(value: unknown): IncomingFrame {
  if (!hasType(value)) return { kind: "malformed", problem: "not an object with a type" };
  if (value["payload"] === undefined) {
    return isControl(value) ? { kind: "control", frame: value } : { kind: "unknown" };
  }
  if (value["seq"] !== undefined) {
    if (!Number.isSafeInteger(value["seq"]))
      return { kind: "malformed", problem: "seq is not an integer" };
    if (isDurable(value)) return { kind: "durable", event: value };
  } else if (isEphemeral(value)) {
    return { kind: "ephemeral", event: value };
  }
  return isEvent(value)
    ? { kind: "unknown", event: value }
    : { kind: "malformed", problem: "an event without session_id" };
}

function hasType(value: unknown): value is Fields {
  return (
    typeof value === "object" && value !== null && "type" in value && typeof value.type === "string"
  );
}

function isControl(value: Fields): value is Fields & ControlFrame {
  return Object.hasOwn(CONTROL, value.type);
}

function isEvent(value: Fields): value is Fields & UnknownEvent {
  return typeof value["session_id"] === "string";
}

function hasPayloadObject(value: Fields): boolean {
  return typeof value["payload"] === "object" && value["payload"] !== null;
}

function isDurable(value: Fields): value is Fields & DurableEvent {
  return (
    isDurableType(value.type) && typeof value["run_id"] === "string" && hasPayloadObject(value)
  );
}

function isEphemeral(value: Fields): value is Fields & EphemeralEvent {
  return isEphemeralType(value.type) && isEvent(value) && hasPayloadObject(value);
}
