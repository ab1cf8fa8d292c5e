/* Steps: the parts of a run that are executed once each, whatever workers come and go. */
import { z } from "zod";
import { failure, id, label, reason } from "../fields.ts";
import { durable } from "./envelope.ts";

export const stepStarted = durable(
  "step.started",
  "A part of the run begins, or a failed or superseded one is done again.",
  z.object({ step_id: id, name: label, parent_step_id: id.optional() }),
);

export const stepCompleted = durable(
  "step.completed",
  "Done for good: whoever carries the run on skips it.",
  z.object({ step_id: id, output: z.unknown().optional() }),
);

export const stepFailed = durable(
  "step.failed",
  "It failed; `step.retry` may have it done again.",
  z.object({ step_id: id, error: failure }),
);

export const stepSuperseded = durable(
  "step.superseded",
  "It was cut short and will be done again: what it had shown (its own messages) no longer counts.",
  z.object({ step_id: id, reason: reason.optional() }),
);
