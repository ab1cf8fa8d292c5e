/* What a run asks of people: a decision or an input. */
import { z } from "zod";
import { attachment, id, json, options, reason, time, user } from "../fields.ts";
import { durable } from "./envelope.ts";

export const approvalRequested = durable(
  "approval.requested",
  "Somebody must decide. At `expires_at` the `default` is taken. `args_hash` names what is approved.",
  z.object({
    approval_id: id,
    tool_call_id: id.optional(),
    operation: z.string().min(1).max(256),
    description: z.string(),
    risk_level: z.enum(["low", "medium", "high"]),
    /** Hash of the arguments that are approved; an answer that names another is `stale`. */
    args_hash: z.string().min(1).max(128),
    expires_at: time,
    default: z.enum(["allow", "deny"]),
  }),
);

export const approvalResolved = durable(
  "approval.resolved",
  "Decided. `expired`: nobody answered, and the request's `default` holds; then `by` is absent.",
  z.object({
    approval_id: id,
    decision: z.enum(["allow", "deny", "expired"]),
    by: user.optional(),
    reason: reason.optional(),
  }),
);

export const inputRequested = durable(
  "input.requested",
  "Somebody must say something; `schema` is a JSON Schema of it.",
  z.object({
    input_id: id,
    prompt: z.string(),
    schema: z.record(z.string(), z.unknown()).optional(),
  }),
);

export const inputReceived = durable(
  "input.received",
  "With `input_id` the answer to a request; without, an instruction of `run.continue`, `queued` while the agent is busy.",
  z.object({
    input_id: id.optional(),
    content: json,
    attachments: z.array(attachment).optional(),
    options: options.optional(),
    by: user.optional(),
    queued: z.boolean().optional(),
  }),
);
