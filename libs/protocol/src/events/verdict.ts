/* The worker's refusal of a stored command. */
import { z } from "zod";
import { id } from "../fields.ts";
import { durable } from "./envelope.ts";

export const commandRejectedEvent = durable(
  "command.rejected",
  "The worker's verdict on a stored command that has no other effect. `current` says how things stand.",
  z.object({
    /** The command's id. */
    id,
    code: z.string().min(1).max(64),
    message: z.string(),
    /** How things stand, e.g. the decision that was taken instead. */
    current: z.unknown().optional(),
  }),
);
