import { z } from "zod";
import { eventIdField, id, time, user } from "../fields.ts";

/**
 * A stored event. The writer makes all of it but `cursor`, which the edge adds at delivery, since only
 * the stored message has a place in the stream.
 */
export function durable<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({
      type: z.literal(type),
      session_id: id,
      run_id: id,
      /** 1, 2, 3 … within the run. */
      seq: z.int().min(1),
      event_id: eventIdField,
      ts: time,
      /** Id of the command that caused it. */
      reply_to: id.optional(),
      /** Whose command that was: ids are chosen by clients, so two users may choose the same one. */
      reply_by: user.optional(),
      step_id: id.optional(),
      /** Place of a durable operation, `parent/name#n`: by it a takeover finds what is done already. */
      key: z.string().min(1).max(512).optional(),
      payload,
      cursor: z.string().optional(),
    })
    .describe(meaning);
}

/** An event of a run that is sent once and not stored. `attempt` tells a fenced worker's from its successor's. */
export function ephemeral<T extends string, P extends z.ZodType>(
  type: T,
  meaning: string,
  payload: P,
) {
  return z
    .object({
      type: z.literal(type),
      session_id: id,
      run_id: id,
      attempt: z.int().min(1),
      ts: time,
      step_id: id.optional(),
      payload,
    })
    .describe(meaning);
}
