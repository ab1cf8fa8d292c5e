/* Commands that answer what a run asked for. */
import { z } from "zod";
import { id, json, reason } from "../fields.ts";
import { MAX_LEASE_MS, MIN_LEASE_MS } from "../limits.ts";
import { runCommand } from "./envelope.ts";

export const approvalRespond = runCommand(
  "approval.respond",
  "Decides. `reply_to` is the request's `event_id`; `args_hash`, where given, must be the request's.",
  z.object({
    approval_id: id,
    decision: z.enum(["allow", "deny"]),
    args_hash: z.string().min(1).max(128).optional(),
    reason: reason.optional(),
  }),
);

export const toolCallClaim = runCommand(
  "tool_call.claim",
  "Only one device executes a client-side tool. The same `claim_id` again renews; a lapsed claim is free.",
  z.object({
    tool_call_id: id,
    claim_id: id,
    lease_ms: z.int().min(MIN_LEASE_MS).max(MAX_LEASE_MS).optional(),
  }),
);

const toolReport = z.object({
  tool_call_id: id,
  claim_id: id.optional(),
  result: z.unknown().optional(),
  error: z
    .object({
      code: z.string().min(1).max(64).optional(),
      message: z.string().max(65_536),
      retryable: z.boolean().optional(),
    })
    .optional(),
});

type ReportLike = { result?: unknown; error?: unknown };
const hasOneOutcome = (report: ReportLike): boolean =>
  "result" in report !== (report.error !== undefined);
const ONE_OUTCOME = "needs either result or error";

export const toolResultReport = runCommand(
  "tool_result.report",
  "Outcomes of client-side tools, each with `result` or `error`: one, or several in `results`. With a lapsed claim → `stale`.",
  toolReport
    .partial({ tool_call_id: true })
    .extend({
      results: z.array(toolReport.refine(hasOneOutcome, ONE_OUTCOME)).min(1).max(64).optional(),
    })
    .superRefine((payload, issues) => {
      const single = payload.tool_call_id !== undefined;
      if (single === (payload.results !== undefined)) {
        issues.addIssue({ code: "custom", message: "needs either tool_call_id or results" });
      } else if (single && !hasOneOutcome(payload)) {
        issues.addIssue({ code: "custom", message: ONE_OUTCOME });
      }
    }),
);

export type ToolReport = z.infer<typeof toolReport>;

export const inputRespond = runCommand(
  "input.respond",
  "Answers an input request.",
  z.object({ input_id: id, content: json }),
);

export type Decision = z.infer<typeof approvalRespond>["payload"]["decision"];
