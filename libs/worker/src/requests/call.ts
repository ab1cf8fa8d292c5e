/** A tool call: what the agent asked for, and what the log knows of it. */
import {
  FAILURE_CODES,
  type FailureCode,
  type NewEvent,
  type RunState,
  type ToolCallState,
} from "@throughline/protocol";
import type { Failure } from "../failure.ts";
import type { ScopeRun } from "../scope-run.ts";

export interface Call {
  readonly key: string;
  readonly callId: string;
  readonly stepId: string | undefined;
  /** What calls that were made at once share. */
  readonly batchId: string | undefined;
  readonly name: string;
  readonly args: unknown;
  readonly timeoutMs: number | undefined;
}

/** The newest are the busy ones. */
export function findCall(state: RunState, callId: string): ToolCallState | undefined {
  return state.tool_calls.findLast((call) => call.tool_call_id === callId);
}

/** An event about the call. */
export function about<E extends NewEvent>(call: Call, event: E): E {
  return call.stepId === undefined ? event : { ...event, step_id: call.stepId };
}

/** Resolves when the failure is stored. */
export async function failed(run: ScopeRun, call: Call, error: Failure): Promise<void> {
  const payload = { tool_call_id: call.callId, error };
  await run.lane.append(about(call, { type: "tool_call.failed", payload }));
}

export function failureFor(code: FailureCode, message: string): Failure {
  return { code, message, retryable: FAILURE_CODES[code].retryable };
}
