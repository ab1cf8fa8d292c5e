/* A run's life. */
import { z } from "zod";
import {
  attachment,
  failure,
  id,
  json,
  options,
  reason,
  time,
  tool,
  usage,
  user,
} from "../fields.ts";
import { durable } from "./envelope.ts";

export const runQueued = durable(
  "run.queued",
  "The run's first event, and the job that a worker takes: one write starts a run. `retry_of` and `from_step` on a repetition of a finished run, `parent_run_id` on a run that another one started.",
  z.object({
    agent: id,
    /** Large ones are an `{"$artifact": …}`. */
    input: json,
    attachments: z.array(attachment).optional(),
    /** Tools that the client executes. */
    tools: z.array(tool).optional(),
    options: options.optional(),
    parent_run_id: id.optional(),
    retry_of: id.optional(),
    from_step: id.optional(),
    by: user,
    /** When the run fails if nobody has finished it. */
    deadline: time,
  }),
);

const attempt = z.object({ attempt: z.int().min(1), worker: z.string().min(1).max(256) });

export const runStarted = durable("run.started", "The first worker has it.", attempt);

export const runResumed = durable(
  "run.resumed",
  "With a higher `attempt`: another worker took over; a pause and open requests stay. With the same: the run goes on after an interrupt.",
  attempt,
);

export const runStatus = durable(
  "run.status",
  "What the run is busy with, or waits for.",
  z.object({
    status: z.enum([
      "running",
      "waiting_approval",
      "waiting_tools",
      "waiting_input",
      "interrupted",
    ]),
  }),
);

export const runInterrupted = durable(
  "run.interrupted",
  "The run is paused. No `model.*` of the stopped step follows.",
  z.object({ reason: reason.optional(), preserve_context: z.boolean(), by: user.optional() }),
);

export const runCompleted = durable(
  "run.completed",
  "The end: done. `usage` is the run's total.",
  z.object({ output: z.unknown().optional(), usage: usage.optional() }),
);

export const runFailed = durable("run.failed", "The end: it could not be done.", failure);

export const runCancelled = durable(
  "run.cancelled",
  "The end: nobody wants it any more.",
  z.object({ reason: reason.optional(), by: user.optional() }),
);
