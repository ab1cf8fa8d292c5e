import { z } from "zod";
import { id } from "../fields.ts";

/** A command id or an event id: what a command answers to. */
const replyTo = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}(\.[1-9][0-9]{0,15})?$/, "must be a command id or an event id");

/** Addressed to the edge itself, or making something new. */
export function connectionCommand<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({ type: z.literal(type), id, reply_to: replyTo.optional(), payload })
    .describe(meaning);
}

/** Addressed to a session. */
export function sessionCommand<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({
      type: z.literal(type),
      id,
      session_id: id,
      reply_to: replyTo.optional(),
      payload,
    })
    .describe(meaning);
}

/** Addressed to a run. */
export function runCommand<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({
      type: z.literal(type),
      id,
      session_id: id,
      run_id: id,
      reply_to: replyTo.optional(),
      payload,
    })
    .describe(meaning);
}

/** Addressed to a run, or without `run_id` to something else of the session. */
export function sessionOrRunCommand<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({
      type: z.literal(type),
      id,
      session_id: id,
      run_id: id.optional(),
      reply_to: replyTo.optional(),
      payload,
    })
    .describe(meaning);
}
