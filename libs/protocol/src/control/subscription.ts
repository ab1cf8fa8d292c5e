/* Frames about a subscription. */
import { z } from "zod";
import { id } from "../fields.ts";
import { runStateSchema } from "../state/schema.ts";

export const subscribed = z
  .object({
    type: z.literal("subscribed"),
    id: id.optional(),
    subscription_id: id,
    session_id: id,
    run_id: id.optional(),
    recovered: z.boolean(),
    mode: z.enum(["replay", "snapshot", "live"]),
    reason: z.enum(["cursor_expired", "cursor_invalid"]).optional(),
    cursor: z.string(),
  })
  .describe(
    "Answers `subscribe`; without `id` where the connect URL subscribed. `recovered`: nothing is missing between what was asked for and what follows. `cursor`: where it starts.",
  );

export const unsubscribed = z
  .object({
    type: z.literal("unsubscribed"),
    id: id.optional(),
    subscription_id: id,
    reason: z.enum(["asked", "run_ended", "membership", "too_slow"]),
  })
  .describe("The subscription is over.");

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
  )
  .describe("A run's state as of `cursor`; one over the frame limit is fetched from `state_url`.");

export const caughtUp = z
  .object({
    type: z.literal("caught_up"),
    subscription_id: id,
    cursor: z.string(),
  })
  .describe("What follows is live.");

export const lagging = z
  .object({ type: z.literal("lagging"), subscription_id: id })
  .describe("Ephemeral events are withheld, since the client reads too slowly.");

export const recovered = z
  .object({ type: z.literal("recovered"), subscription_id: id })
  .describe("They are sent again.");
