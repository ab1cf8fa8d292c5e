/* What a run asks of people: a decision or an input. */
import { z } from "zod";
import { attachment, id, json, options, reason, time, user } from "../fields.ts";
import { durable } from "./envelope.ts";

export const approvalRequested = durable(
  "approval.requested",
  z.object({
    approval_id: id,
    tool_call_id: id.optional(),
    operation: z.string().min(1).max(256),
    description: z.string(),
    risk_level: z.enum(["low", "medium", "high"]),
    /** Hash of the arguments that are approved; an answer that names another is `stale`. */
    args_hash: z.string().min(1).max(128),
    expires_at: time,
    /** What is decided when it expires. */
    default: z.enum(["allow", "deny"]),
  }),
);

export const approvalResolved = durable(
  "approval.resolved",
  z.object({
    approval_id: id,
    /** `expired`: nobody answered; the request's `default` holds. */
    decision: z.enum(["allow", "deny", "expired"]),
    /** Absent when nobody decided. */
    by: user.optional(),
    reason: reason.optional(),
  }),
);

export const inputRequested = durable(
  "input.requested",
  z.object({
    input_id: id,
    prompt: z.string(),
    /** JSON Schema of the content that is wanted. */
    schema: z.record(z.string(), z.unknown()).optional(),
  }),
);

/** With `input_id` the answer to a request; without, an instruction of `run.continue`. */
export const inputReceived = durable(
  "input.received",
  z.object({
    input_id: id.optional(),
    content: json,
    attachments: z.array(attachment).optional(),
    options: options.optional(),
    by: user.optional(),
    /** The run is busy; the agent sees it when it next looks into its inbox. */
    queued: z.boolean().optional(),
  }),
);
