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

/** The run's first event, and the job that a worker takes: one write starts a run. */
export const runQueued = durable(
  "run.queued",
  z.object({
    agent: id,
    /** Large ones are an `{"$artifact": …}`. */
    input: json,
    attachments: z.array(attachment).optional(),
    /** Tools that the client executes. */
    tools: z.array(tool).optional(),
    options: options.optional(),
    /** The run that started this one. */
    parent_run_id: id.optional(),
    /** The finished run that this one repeats, and the step from which nothing is kept. */
    retry_of: id.optional(),
    from_step: id.optional(),
    by: user,
    /** When the run fails if nobody has finished it. */
    deadline: time,
  }),
);

const attempt = z.object({ attempt: z.int().min(1), worker: z.string().min(1).max(256) });

export const runStarted = durable("run.started", attempt);

/** With a higher attempt: another worker took over. With the same: the answer to `run.resume`. */
export const runResumed = durable("run.resumed", attempt);

export const runStatus = durable(
  "run.status",
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

/** The run is paused. No `model.*` of the stopped step follows. */
export const runInterrupted = durable(
  "run.interrupted",
  z.object({ reason: reason.optional(), preserve_context: z.boolean(), by: user.optional() }),
);

export const runCompleted = durable(
  "run.completed",
  z.object({ output: z.unknown().optional(), usage: usage.optional() }),
);

export const runFailed = durable("run.failed", failure);

export const runCancelled = durable(
  "run.cancelled",
  z.object({ reason: reason.optional(), by: user.optional() }),
);
