/* Commands that the edge answers by itself. */
import { z } from "zod";
import { cursor, id, time } from "../fields.ts";
import { MAX_WINDOW } from "../limits.ts";
import { connectionCommand, sessionOrRunCommand } from "./envelope.ts";

export const subscribe = sessionOrRunCommand(
  "subscribe",
  "Asks for the events of a run, or without `run_id` of the whole session. Without `cursor` from `from` on (absent: `start`). `window`: at most so many events without an `ack`. `deltas` (absent: true): ephemeral events too.",
  z
    .object({
      cursor: cursor.optional(),
      from: z.enum(["start", "latest", "snapshot"]).optional(),
      window: z.int().min(1).max(MAX_WINDOW).optional(),
      deltas: z.boolean().optional(),
    })
    .prefault({}),
);

export const unsubscribe = connectionCommand(
  "unsubscribe",
  "Ends a subscription.",
  z.object({ subscription_id: id }),
);

export const ack = connectionCommand(
  "ack",
  "Frees credit.",
  z.object({ subscription_id: id, cursor }),
);

export const authRefresh = connectionCommand(
  "auth.refresh",
  "A new token of the same tenant and user.",
  z.object({ token: z.string().min(1).max(8_192) }),
);

export const heartbeatCommand = connectionCommand(
  "heartbeat",
  "Asks for a sign of life.",
  z.object({ ts: time }),
);
