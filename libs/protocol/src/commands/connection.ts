/* Commands that the edge answers by itself. */
import { z } from "zod";
import { cursor, id, time } from "../fields.ts";
import { MAX_WINDOW } from "../limits.ts";
import { connectionCommand, sessionCommand } from "./envelope.ts";

/** Without `run_id`: the whole session. */
export const subscribe = sessionCommand(
  "subscribe",
  z
    .object({
      cursor: cursor.optional(),
      /** Where to start without a cursor; absent: `start`. */
      from: z.enum(["start", "latest", "snapshot"]).optional(),
      /** At most this many events without an `ack`. */
      window: z.int().min(1).max(MAX_WINDOW).optional(),
      /** Whether ephemeral events are wanted; absent: yes. */
      deltas: z.boolean().optional(),
    })
    .prefault({}),
).extend({ run_id: id.optional() });

export const unsubscribe = connectionCommand("unsubscribe", z.object({ subscription_id: id }));

/** Frees credit. Has no answer. */
export const ack = connectionCommand("ack", z.object({ subscription_id: id, cursor }));

/** A new token of the same tenant and user. */
export const authRefresh = connectionCommand(
  "auth.refresh",
  z.object({ token: z.string().min(1).max(8_192) }),
);

export const heartbeatCommand = connectionCommand("heartbeat", z.object({ ts: time }));
