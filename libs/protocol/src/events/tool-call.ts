/* Tool calls, executed by the worker or by a client of the session. */
import { z } from "zod";
import { executor, failure, id, json, toolName, user } from "../fields.ts";
import { durable, ephemeral } from "./envelope.ts";

export const toolCallCreated = durable(
  "tool_call.created",
  "The model wants a tool. Calls that it asked for at once share a `batch_id`.",
  z.object({
    tool_call_id: id,
    name: toolName,
    args: json,
    executor,
    requires_approval: z.boolean(),
    batch_id: id.optional(),
  }),
);

export const toolCallStatus = durable(
  "tool_call.status",
  "`claimed`: one device has it for `lease_ms` from `ts` on. `pending`: free (again).",
  z.object({
    tool_call_id: id,
    status: z.enum(["pending", "claimed", "running"]),
    claim_id: id.optional(),
    lease_ms: z.int().min(1).optional(),
    by: user.optional(),
  }),
);

export const toolCallCompleted = durable(
  "tool_call.completed",
  "The call's outcome. The first one stands.",
  z.object({ tool_call_id: id, result: json }),
);

export const toolCallFailed = durable(
  "tool_call.failed",
  "The call's outcome, an error. The first one stands.",
  z.object({ tool_call_id: id, error: failure }),
);

export const toolCallProgress = ephemeral(
  "tool_call.progress",
  "Word from a running tool; `fraction` is 0 to 1, `output` a piece of what it prints.",
  z.object({
    tool_call_id: id,
    fraction: z.number().min(0).max(1).optional(),
    message: z.string().optional(),
    output: z.string().optional(),
  }),
);
