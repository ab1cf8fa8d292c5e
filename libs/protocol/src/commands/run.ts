/* Commands that make, steer and end runs. */
import { z } from "zod";
import { attachment, id, json, options, reason, tool } from "../fields.ts";
import { runCommand, sessionCommand, sessionOrRunCommand } from "./envelope.ts";

export const runStart = sessionCommand(
  "run.start",
  "Starts a run; its id is derived from the command's. `tools` are those that this client, or another device of the session, executes.",
  z.object({
    agent: id,
    input: json,
    attachments: z.array(attachment).max(64).optional(),
    tools: z.array(tool).max(256).optional(),
    options: options.optional(),
  }),
);

export const runCancel = sessionOrRunCommand(
  "run.cancel",
  "Stops for good. By `run_id`, or by `start_id`, the start command's id, where the run's is not known yet: one of the two.",
  z.object({ reason: reason.optional(), start_id: id.optional() }).prefault({}),
).refine((command) => (command.run_id === undefined) !== (command.payload.start_id === undefined), {
  path: ["run_id"],
  message: "is required, or else payload.start_id; not both",
});

export const runInterrupt = runCommand(
  "run.interrupt",
  "Stops the current step and keeps the run. `preserve_context` (absent: true): the agent goes on with what it knows.",
  z
    .object({
      reason: reason.optional(),
      preserve_context: z.boolean().optional(),
    })
    .prefault({}),
);

export const runResume = runCommand(
  "run.resume",
  "Goes on after an interrupt.",
  z.object({}).prefault({}),
);

export const runContinue = runCommand(
  "run.continue",
  "A new instruction. A busy run sees it at its next look into the inbox.",
  z.object({
    content: json,
    attachments: z.array(attachment).max(64).optional(),
    options: options.optional(),
  }),
);

export const runRetry = runCommand(
  "run.retry",
  "Of a finished run: a new run that keeps its completed steps, or those before `from_step`.",
  z.object({ from_step: id.optional() }).prefault({}),
);

export const stepRetry = runCommand(
  "step.retry",
  "Does a failed step of a live run again.",
  z.object({ step_id: id }),
);
