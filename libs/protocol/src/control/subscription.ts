/* Frames about a subscription. */
import { z } from "zod";
import { id } from "../fields.ts";
import { runStateSchema } from "../state/schema.ts";

export const subscribed = z.object({
  type: z.literal("subscribed"),
  /** Of the `subscribe` command; absent where the connect URL subscribed. */
  id: id.optional(),
  subscription_id: id,
  session_id: id,
  run_id: id.optional(),
  /** Nothing is missing between the cursor that was given (or the start) and what follows. */
  recovered: z.boolean(),
  mode: z.enum(["replay", "snapshot", "live"]),
  reason: z.enum(["cursor_expired", "cursor_invalid"]).optional(),
  /** Where it starts. */
  cursor: z.string(),
});

export const unsubscribed = z.object({
  type: z.literal("unsubscribed"),
  id: id.optional(),
  subscription_id: id,
  reason: z.enum(["asked", "run_ended", "membership", "too_slow"]),
});

/** The run's state as of `cursor`; one over the frame limit is fetched from `state_url`. */
export const snapshot = z
  .object({
    type: z.literal("snapshot"),
    subscription_id: id,
    run_id: id,
    state: runStateSchema.optional(),
    state_url: z.string().optional(),
    cursor: z.string(),
  })
  .refine(
    (frame) => (frame.state === undefined) !== (frame.state_url === undefined),
    "needs either state or state_url",
  );

/** What follows is live. */
export const caughtUp = z.object({
  type: z.literal("caught_up"),
  subscription_id: id,
  cursor: z.string(),
});

/** Deltas are withheld, since the client reads too slowly. */
export const lagging = z.object({ type: z.literal("lagging"), subscription_id: id });

export const recovered = z.object({ type: z.literal("recovered"), subscription_id: id });
