/* Answers to commands. */
import { z } from "zod";
import { count, id } from "../fields.ts";

export const sessionCreated = z
  .object({
    type: z.literal("session.created"),
    id,
    session_id: id,
    duplicate: z.boolean().optional(),
  })
  .describe(
    "Answers `session.create`. `duplicate`: it was there already, since the command had come before.",
  );

export const commandAccepted = z
  .object({
    type: z.literal("command.accepted"),
    id,
    run_id: id.optional(),
    duplicate: z.boolean(),
  })
  .describe(
    "The command is stored. Its effect comes as an event whose `reply_to` is `id`. `duplicate`: it had been stored before.",
  );

export const commandRejectedFrame = z
  .object({
    type: z.literal("command.rejected"),
    id,
    code: z.string().min(1).max(64),
    message: z.string(),
    path: z.string().optional(),
    retry_after_ms: count.optional(),
    current: z.unknown().optional(),
  })
  .describe("The edge's refusal: nothing was stored.");
