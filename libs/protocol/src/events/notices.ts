/* Ephemeral notices that no state is built from. */
import { z } from "zod";
import { count, id, time, user } from "../fields.ts";
import { ephemeral } from "./envelope.ts";

export const log = ephemeral(
  "log",
  "A line of the agent's log.",
  z.object({
    level: z.enum(["debug", "info", "warn", "error"]),
    message: z.string(),
    fields: z.record(z.string(), z.unknown()).optional(),
  }),
);

/** Of the session, not of a run: no `run_id`, no `attempt`. */
export const presence = z
  .object({
    type: z.literal("presence"),
    session_id: id,
    ts: time,
    payload: z.object({
      user,
      status: z.enum(["online", "offline"]),
      connections: count,
    }),
  })
  .describe("Who is on the session; `connections` of that user are open now. Has no `run_id`.");
