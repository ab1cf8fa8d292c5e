/* All control frames of the wire. Their fields stand at the top; only events have a `payload`. */
import { z } from "zod";
import type { RunEvent } from "../events/catalogue.ts";
import { commandAccepted, commandRejectedFrame, sessionCreated } from "./answer.ts";
import {
  authExpiring,
  authRefreshed,
  error,
  goaway,
  heartbeat,
  heartbeatAck,
  welcome,
} from "./connection.ts";
import {
  caughtUp,
  lagging,
  recovered,
  snapshot,
  subscribed,
  unsubscribed,
} from "./subscription.ts";

export const controlFrameSchema = z.discriminatedUnion("type", [
  welcome,
  sessionCreated,
  subscribed,
  unsubscribed,
  snapshot,
  caughtUp,
  lagging,
  recovered,
  commandAccepted,
  commandRejectedFrame,
  heartbeat,
  heartbeatAck,
  goaway,
  authExpiring,
  authRefreshed,
  error,
]);

export type ControlFrame = z.infer<typeof controlFrameSchema>;
export type ControlType = ControlFrame["type"];
export type ControlFrameOf<T extends ControlType> = Extract<ControlFrame, { type: T }>;

/** All that an edge sends. */
export type ServerFrame = RunEvent | ControlFrame;
