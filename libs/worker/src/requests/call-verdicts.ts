/**
 * Claims on client-side tool calls, and reports of their outcomes. Pure.
 *
 * A claim is a user's `claim_id` for as long as its lease lasts. It lapses by time: whether that was told
 * already (`tool_call.status {pending}`) makes no difference.
 */
import type {
  CommandPayload,
  EventPayload,
  NewEvent,
  RunState,
  ToolCallState,
  ToolReport,
} from "@throughline/protocol";
import { answers, type Asked, rejected, within } from "./answer.ts";

/** A claim whose device says no more is free after this, unless the claim names its own time. */
const DEFAULT_LEASE_MS = 30_000;

type Claim = NonNullable<ToolCallState["claim"]>;

/** The claim that holds a call at that time. */
export function liveClaim(call: ToolCallState, at: number): Claim | undefined {
  if (call.status !== "claimed" || call.claim === undefined) return undefined;
  return at <= (call.claim.expires_at ?? Infinity) ? call.claim : undefined;
}

export function isSettled(call: Pick<ToolCallState, "status">): boolean {
  return call.status === "completed" || call.status === "failed";
}

export function judgeClaim(
  { tool_call_id, claim_id, lease_ms }: CommandPayload<"tool_call.claim">,
  asked: Asked,
  state: RunState,
): NewEvent {
  const call = state.tool_calls.find((one) => one.tool_call_id === tool_call_id);
  const refusal = refusalOf(tool_call_id, call, asked);
  if (refusal) return refusal;
  const held = call === undefined ? undefined : liveClaim(call, asked.made);
  if (held && !isOf(held, asked, claim_id)) {
    return rejected(asked, "not_allowed", "another device has claimed the call", {
      tool_call_id,
      status: "claimed",
      expires_at: held.expires_at,
    });
  }
  return {
    type: "tool_call.status",
    ...answers(asked),
    ...within(call ?? {}),
    payload: {
      tool_call_id,
      status: "claimed",
      claim_id,
      lease_ms: lease_ms ?? DEFAULT_LEASE_MS,
      by: asked.by,
    },
  };
}

/** One event per outcome that was reported, in their order. Of several for one call the first counts. */
export function judgeReport(
  payload: CommandPayload<"tool_result.report">,
  asked: Asked,
  state: RunState,
): readonly NewEvent[] {
  const now = new Map(state.tool_calls.map((call) => [call.tool_call_id, call]));
  return reportsOf(payload).map((report) => {
    const call = now.get(report.tool_call_id);
    const event = judgeOne(report, call, asked);
    if (call && event.type !== "command.rejected") {
      const status = event.type === "tool_call.completed" ? "completed" : "failed";
      now.set(report.tool_call_id, { ...call, status });
    }
    return event;
  });
}

function reportsOf(payload: CommandPayload<"tool_result.report">): readonly ToolReport[] {
  if (payload.results !== undefined) return payload.results;
  const { tool_call_id } = payload;
  // The schema has it that one of the two is there.
  return tool_call_id === undefined ? [] : [{ ...payload, tool_call_id }];
}

function judgeOne(report: ToolReport, call: ToolCallState | undefined, asked: Asked): NewEvent {
  const { tool_call_id, claim_id } = report;
  const refusal = refusalOf(tool_call_id, call, asked);
  if (refusal || call === undefined) {
    return refusal ?? rejected(asked, "not_found", NO_SUCH_CALL, { tool_call_id });
  }
  const held = liveClaim(call, asked.made);
  if (claim_id === undefined && held) {
    const current = { tool_call_id, status: "claimed", expires_at: held.expires_at };
    return rejected(asked, "not_allowed", "another device has claimed the call", current);
  }
  if (claim_id !== undefined && !(held && isOf(held, asked, claim_id))) {
    const current = { tool_call_id, status: held ? "claimed" : "pending" };
    return rejected(asked, "stale", "the claim has lapsed, or is another's", current);
  }
  const told = { ...answers(asked), ...within(call) };
  if (report.error !== undefined) {
    const error = failureOf(report.error);
    return { type: "tool_call.failed", ...told, payload: { tool_call_id, error } };
  }
  const result = report.result ?? null;
  return { type: "tool_call.completed", ...told, payload: { tool_call_id, result } };
}

const NO_SUCH_CALL = "the run has no such tool call";

/** What holds for claims and reports alike. */
function refusalOf(
  tool_call_id: string,
  call: ToolCallState | undefined,
  asked: Asked,
): NewEvent | undefined {
  if (call === undefined) return rejected(asked, "not_found", NO_SUCH_CALL, { tool_call_id });
  const { status, executor } = call;
  if (executor === "worker") {
    const current = { tool_call_id, status, executor };
    return rejected(asked, "not_allowed", "the worker executes this call itself", current);
  }
  if (!isSettled(call)) return undefined;
  return rejected(asked, "already_resolved", "the call has its outcome", { tool_call_id, status });
}

function isOf(claim: Claim, asked: Asked, claimId: string): boolean {
  return claim.claim_id === claimId && claim.by === asked.by;
}

function failureOf(
  error: NonNullable<ToolReport["error"]>,
): EventPayload<"tool_call.failed">["error"] {
  return {
    code: error.code ?? "tool_error",
    message: error.message,
    retryable: error.retryable ?? false,
  };
}
