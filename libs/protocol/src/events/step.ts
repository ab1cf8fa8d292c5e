/* Steps: the parts of a run that are executed once each, whatever workers come and go. */
import { z } from "zod";
import { failure, id, label, reason } from "../fields.ts";
import { durable } from "./envelope.ts";

export const stepStarted = durable(
  "step.started",
  z.object({ step_id: id, name: label, parent_step_id: id.optional() }),
);

export const stepCompleted = durable(
  "step.completed",
  z.object({ step_id: id, output: z.unknown().optional() }),
);

export const stepFailed = durable("step.failed", z.object({ step_id: id, error: failure }));

/** The step was cut short and will be done again: what it had shown no longer counts. */
export const stepSuperseded = durable(
  "step.superseded",
  z.object({ step_id: id, reason: reason.optional() }),
);
