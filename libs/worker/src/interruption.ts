/** An interrupt, in events: what the stopped agent had open is closed, and the run is paused. Pure. */
import { FAILURE_CODES, type NewEvent, type RunState } from "@throughline/protocol";
import type { Failure } from "./failure.ts";

/** The interrupt command that was applied. */
export interface InterruptRequest {
  readonly id: string;
  readonly user: string;
  /** Of the command in its stream: the watermark. */
  readonly streamSeq: number;
  readonly reason: string | undefined;
  readonly preserveContext: boolean;
}

const INTERRUPTED: Failure = {
  code: "interrupted",
  message: FAILURE_CODES.interrupted.summary,
  retryable: FAILURE_CODES.interrupted.retryable,
};

/**
 * Inputs stay open: their answer is as good after the pause. A step that loses its context is superseded,
 * its messages with it; else it fails as `interrupted`, and what it had shown stays. Either is done again.
 */
export function interruptEvents(state: RunState, request: InterruptRequest): NewEvent[] {
  const { id, user, reason, preserveContext } = request;
  const within = (stepId: string | undefined): { step_id?: string } =>
    stepId === undefined ? {} : { step_id: stepId };
  const events: NewEvent[] = [];
  for (const { message_id, step_id, text, status } of state.messages) {
    if (status !== "open") continue;
    events.push({
      type: "message.completed",
      ...within(step_id),
      payload: { message_id, length: text.length, finish_reason: "interrupted" },
    });
  }
  for (const { tool_call_id, step_id, status } of state.tool_calls) {
    if (status === "completed" || status === "failed") continue;
    events.push({
      type: "tool_call.failed",
      ...within(step_id),
      payload: { tool_call_id, error: INTERRUPTED },
    });
  }
  for (const { approval_id, step_id, status } of state.approvals) {
    if (status !== "open") continue;
    events.push({
      type: "approval.resolved",
      ...within(step_id),
      payload: { approval_id, decision: "deny", reason: "interrupted", by: user },
    });
  }
  for (const { step_id, status } of state.steps.toReversed()) {
    if (status !== "running") continue;
    events.push(
      preserveContext
        ? { type: "step.failed", step_id, payload: { step_id, error: INTERRUPTED } }
        : { type: "step.superseded", step_id, payload: { step_id, reason: "interrupted" } },
    );
  }
  const told = reason === undefined ? {} : { reason };
  events.push({
    type: "run.interrupted",
    reply_to: id,
    reply_by: user,
    payload: { ...told, preserve_context: preserveContext, by: user },
  });
  return events;
}
