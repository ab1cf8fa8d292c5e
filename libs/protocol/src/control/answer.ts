/* Answers to commands. */
import { z } from "zod";
import { count, id } from "../fields.ts";

export const sessionCreated = z.object({
  type: z.literal("session.created"),
  id,
  session_id: id,
  /** The session was there already: the command had come before. */
  duplicate: z.boolean().optional(),
});

/** The command is stored. Its effect comes as an event whose `reply_to` is `id`. */
export const commandAccepted = z.object({
  type: z.literal("command.accepted"),
  id,
  run_id: id.optional(),
  /** The same command had been stored before. */
  duplicate: z.boolean(),
});

/** The edge's refusal: nothing was stored. */
export const commandRejectedFrame = z.object({
  type: z.literal("command.rejected"),
  id,
  code: z.string().min(1).max(64),
  message: z.string(),
  path: z.string().optional(),
  retry_after_ms: count.optional(),
  current: z.unknown().optional(),
});
