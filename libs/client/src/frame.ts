/** The frames of an edge, as far as they mean anything to a client. */
import {
  type ControlFrame,
  type DurableEvent,
  type EphemeralEvent,
  type UnknownEvent,
  readFrame,
} from "@throughline/protocol";
import type { Numbered } from "./subscription/ledger.ts";

/** A durable event as it is delivered: the edge has added its cursor. */
export type DeliveredEvent = DurableEvent & { readonly cursor: string };

/** A durable event of a newer protocol: passed over, but it has its place among the others. */
export type PassedEvent = UnknownEvent & Numbered;

export type Incoming =
  | { readonly kind: "durable"; readonly event: DeliveredEvent }
  | { readonly kind: "passed"; readonly event: PassedEvent }
  | { readonly kind: "ephemeral"; readonly event: EphemeralEvent }
  | { readonly kind: "control"; readonly frame: ControlFrame };

export type IncomingEvent = Exclude<Incoming, { kind: "control" }>;

/**
 * `undefined` for what is no frame and for what has no bearing on anything. Neither is an error to act
 * upon: if an event was lost with it, the next one shows that.
 */
export function decodeFrame(text: string): Incoming | undefined {
  const frame = readFrame(parse(text));
  switch (frame.kind) {
    case "durable":
      return isDelivered(frame.event) ? { kind: "durable", event: frame.event } : undefined;
    case "unknown":
      return isPassed(frame.event) ? { kind: "passed", event: frame.event } : undefined;
    case "ephemeral":
    case "control":
      return frame;
    case "malformed":
      return undefined;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // readFrame calls it malformed, like any other text that is no frame
  }
}

function isDelivered(event: DurableEvent): event is DeliveredEvent {
  return event.cursor !== undefined;
}

function isPassed(event: UnknownEvent | undefined): event is PassedEvent {
  return (
    event?.seq !== undefined &&
    event.run_id !== undefined &&
    "cursor" in event &&
    typeof event.cursor === "string"
  );
}
