/* Commands that make, steer and end runs. */
import { z } from "zod";
import { attachment, id, json, options, reason, tool } from "../fields.ts";
import { runCommand, sessionCommand } from "./envelope.ts";

/** The run's id is derived from the command's; `command.accepted` names it. */
export const runStart = sessionCommand(
  "run.start",
  z.object({
    agent: id,
    input: json,
    attachments: z.array(attachment).max(64).optional(),
    /** What this client, or another device of the session, executes. */
    tools: z.array(tool).max(256).optional(),
    options: options.optional(),
  }),
);

/** Stops for good. By `run_id`, or by the start command's id where the run's is not known yet. */
export const runCancel = sessionCommand(
  "run.cancel",
  z.object({ reason: reason.optional(), start_id: id.optional() }).prefault({}),
)
  .extend({ run_id: id.optional() })
  .refine(
    (command) => (command.run_id === undefined) !== (command.payload.start_id === undefined),
    {
      path: ["run_id"],
      message: "is required, or else payload.start_id; not both",
    },
  );

/** Stops the current step and keeps the run. */
export const runInterrupt = runCommand(
  "run.interrupt",
  z
    .object({
      reason: reason.optional(),
      /** Whether the agent goes on with what it knows; absent: yes. */
      preserve_context: z.boolean().optional(),
    })
    .prefault({}),
);

export const runResume = runCommand("run.resume", z.object({}).prefault({}));

/** A new instruction. A run that is busy sees it at its next look into the inbox. */
export const runContinue = runCommand(
  "run.continue",
  z.object({
    content: json,
    attachments: z.array(attachment).max(64).optional(),
    options: options.optional(),
  }),
);

/** Of a finished run: a new run that keeps its completed steps, or those before `from_step`. */
export const runRetry = runCommand(
  "run.retry",
  z.object({ from_step: id.optional() }).prefault({}),
);

/** A failed step of a live run once more. */
export const stepRetry = runCommand("step.retry", z.object({ step_id: id }));
