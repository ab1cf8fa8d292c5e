/*
 * Telling the frames of an edge apart, without a schema library: this runs in browsers, and what an
 * edge sends needs sorting, not suspicion.
 */
import type { ControlFrame, ControlType } from "./control/catalogue.ts";
import { isDurableType, isEphemeralType } from "./event-kinds.ts";
import type { DurableEvent, EphemeralEvent, UnknownEvent } from "./events/catalogue.ts";

/** What came. `unknown` is a type of a newer version, to be passed over; `malformed` is no frame at all. */
export type IncomingFrame =
  | { readonly kind: "durable"; readonly event: DurableEvent }
  | { readonly kind: "ephemeral"; readonly event: EphemeralEvent }
  | { readonly kind: "control"; readonly frame: ControlFrame }
  | { readonly kind: "unknown"; readonly event: UnknownEvent }
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

export function isControlType(type: string): type is ControlType {
  return Object.hasOwn(CONTROL, type);
}
