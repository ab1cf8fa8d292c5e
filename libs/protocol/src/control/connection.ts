/* Frames about the connection itself. */
import { z } from "zod";
import { count, id, label, time } from "../fields.ts";

export const welcome = z
  .object({
    type: z.literal("welcome"),
    protocol: z.int().min(1),
    connection_id: id,
    node: label,
    heartbeat_interval_ms: z.int().min(1),
    max_frame_bytes: z.int().min(1),
    server_time: time,
  })
  .describe("The first frame of every connection.");

export const heartbeat = z
  .object({ type: z.literal("heartbeat"), ts: time })
  .describe("The edge asks for a sign of life: any frame will do, or the WebSocket's own pong.");

export const heartbeatAck = z
  .object({
    type: z.literal("heartbeat.ack"),
    id: id.optional(),
    ts: time,
  })
  .describe("Answers a client's `heartbeat`; `ts` is the client's own.");

export const goaway = z
  .object({
    type: z.literal("goaway"),
    reconnect_after_ms: count,
    reason: label,
  })
  .describe("The node is about to close this connection.");

export const authExpiring = z
  .object({ type: z.literal("auth.expiring"), expires_in_ms: count })
  .describe("The token runs out; send `auth.refresh`.");

export const authRefreshed = z
  .object({
    type: z.literal("auth.refreshed"),
    id: id.optional(),
    expires_in_ms: count,
  })
  .describe("The new token holds.");

export const error = z
  .object({
    type: z.literal("error"),
    code: z.string().min(1).max(64),
    message: z.string(),
    /** The offending field, e.g. `payload.tools[2].name`. */
    path: z.string().optional(),
    /** Of the frame, where it could be read. */
    id: id.optional(),
    retry_after_ms: count.optional(),
  })
  .describe("A frame that could not be taken. The connection goes on.");
