/*
 * The shape of a run's state: what the reducer makes of the log, what snapshots hold and what clients
 * show. It travels in `snapshot` frames, so it is part of the wire like any message.
 */
import { z } from "zod";
import {
  artifactRef,
  attachment,
  count,
  executor,
  failure,
  id,
  label,
  time,
  tool,
  usage,
} from "../fields.ts";

const runStatus = z.enum([
  "absent",
  "queued",
  "running",
  "waiting_approval",
  "waiting_tools",
  "waiting_input",
  "interrupted",
  "completed",
  "failed",
  "cancelled",
]);

const messageState = z.object({
  message_id: id,
  role: z.enum(["assistant", "user", "system", "tool"]),
  channel: z.enum(["text", "reasoning"]),
  step_id: id.optional(),
  key: z.string().optional(),
  /** Settled by chunks. */
  text: z.string(),
  /** Shown by deltas after `text`, not settled yet. */
  live: z.string(),
  status: z.enum(["open", "completed", "superseded"]),
  finish_reason: z.string().optional(),
});

const stepState = z.object({
  step_id: id,
  key: z.string().optional(),
  name: label,
  parent_step_id: id.optional(),
  status: z.enum(["running", "completed", "failed", "superseded"]),
  /** `seq` of its `step.started`: what was done before it, and what after. */
  started_seq: count.optional(),
  output: z.unknown().optional(),
  error: failure.optional(),
});

const toolCallState = z.object({
  tool_call_id: id,
  event_id: z.string(),
  step_id: id.optional(),
  key: z.string().optional(),
  batch_id: id.optional(),
  name: z.string(),
  args: z.unknown(),
  executor,
  requires_approval: z.boolean(),
  status: z.enum(["pending", "claimed", "running", "completed", "failed"]),
  /** Who executes it, and until when nobody else may. */
  claim: z
    .object({ claim_id: id, by: z.string().optional(), expires_at: time.optional() })
    .optional(),
  result: z.unknown().optional(),
  error: failure.optional(),
  /** `seq` of the event that brought the outcome: the order in which an agent was told of several. */
  outcome_seq: count.optional(),
});

const approvalState = z.object({
  approval_id: id,
  /** Of the request: what an answer's `reply_to` names. */
  event_id: z.string(),
  step_id: id.optional(),
  key: z.string().optional(),
  tool_call_id: id.optional(),
  operation: z.string(),
  description: z.string(),
  risk_level: z.enum(["low", "medium", "high"]),
  args_hash: z.string(),
  expires_at: time,
  default: z.enum(["allow", "deny"]),
  status: z.enum(["open", "resolved"]),
  decision: z.enum(["allow", "deny", "expired"]).optional(),
  by: z.string().optional(),
  reason: z.string().optional(),
  /** `seq` of the event that brought the decision. */
  outcome_seq: count.optional(),
});

const inputState = z.object({
  input_id: id,
  event_id: z.string(),
  step_id: id.optional(),
  key: z.string().optional(),
  prompt: z.string(),
  schema: z.record(z.string(), z.unknown()).optional(),
  status: z.enum(["open", "received"]),
  content: z.unknown().optional(),
  by: z.string().optional(),
});

/** An instruction that came by `run.continue`. */
const inboxItem = z.object({
  event_id: z.string(),
  content: z.unknown(),
  attachments: z.array(attachment).optional(),
  options: z.record(z.string(), z.unknown()).optional(),
  by: z.string().optional(),
  queued: z.boolean(),
});

const artifactState = z.object({
  artifact_id: id,
  name: label,
  media_type: label,
  bytes: count,
  sha256: artifactRef.shape.sha256,
  step_id: id.optional(),
});

export const runStateSchema = z.object({
  run_id: id.optional(),
  session_id: id.optional(),
  agent: id.optional(),
  status: runStatus,
  /** Of the last durable event in it. */
  seq: count,
  /** 0 until a worker has started it. */
  attempt: count,
  /** Attempts in a row, the present one included, that have not brought the run further. */
  idle_attempts: count,
  worker: z.string().optional(),

  input: z.unknown().optional(),
  attachments: z.array(attachment).optional(),
  tools: z.array(tool),
  options: z.record(z.string(), z.unknown()),
  by: z.string().optional(),
  parent_run_id: id.optional(),
  retry_of: id.optional(),
  from_step: id.optional(),
  deadline: time.optional(),

  queued_at: time.optional(),
  started_at: time.optional(),
  updated_at: time.optional(),
  ended_at: time.optional(),

  output: z.unknown().optional(),
  error: failure.optional(),
  /** Of the last interrupt, or of the cancellation. */
  stopped: z.object({ reason: z.string().optional(), by: z.string().optional() }).optional(),
  usage: z.object({ total: usage, models: z.record(z.string(), usage) }),

  messages: z.array(messageState),
  steps: z.array(stepState),
  tool_calls: z.array(toolCallState),
  approvals: z.array(approvalState),
  inputs: z.array(inputState),
  inbox: z.array(inboxItem),
  artifacts: z.array(artifactState),

  /** The application's own state. */
  app: z.unknown(),
  memory: z.record(z.string(), z.unknown()),

  /** Command (see `appliedKey`) → `seq` of the first event that answered it. */
  applied: z.record(z.string(), count),
  /** Scope of keyed events that open nothing → how many there are. */
  emits: z.record(z.string(), count),
});
