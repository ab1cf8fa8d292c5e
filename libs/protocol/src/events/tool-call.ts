/* Tool calls, executed by the worker or by a client of the session. */
import { z } from "zod";
import { executor, failure, id, json, toolName, user } from "../fields.ts";
import { durable, ephemeral } from "./envelope.ts";

export const toolCallCreated = durable(
  "tool_call.created",
  z.object({
    tool_call_id: id,
    name: toolName,
    args: json,
    executor,
    requires_approval: z.boolean(),
    /** Calls that the model asked for at once. */
    batch_id: id.optional(),
  }),
);

export const toolCallStatus = durable(
  "tool_call.status",
  z.object({
    tool_call_id: id,
    status: z.enum(["pending", "claimed", "running"]),
    claim_id: id.optional(),
    /** The claim lapses this long after `ts`. */
    lease_ms: z.int().min(1).optional(),
    by: user.optional(),
  }),
);

export const toolCallCompleted = durable(
  "tool_call.completed",
  z.object({ tool_call_id: id, result: json }),
);

export const toolCallFailed = durable(
  "tool_call.failed",
  z.object({ tool_call_id: id, error: failure }),
);

export const toolCallProgress = ephemeral(
  "tool_call.progress",
  z.object({
    tool_call_id: id,
    /** 0 to 1, where it is known. */
    fraction: z.number().min(0).max(1).optional(),
    message: z.string().optional(),
    /** A piece of the tool's output. */
    output: z.string().optional(),
  }),
);
