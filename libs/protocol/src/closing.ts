/*
 * What a pause or an end closes: whoever writes `run.interrupted` or a terminal event closes before it
 * what it leaves behind, so that nothing hangs open for those who show the run, nor for the session's
 * next run.
 */
import type { EventPayload, NewEvent } from "./events/catalogue.ts";
import { FAILURE_CODES, type FailureCode } from "./failure-codes.ts";
import type { RunState } from "./state/run-state.ts";

type Failure = EventPayload<"run.failed">;

/** Why things are closed. `by`: whose command it was. */
export type Closing =
  | { readonly kind: "completed" }
  | { readonly kind: "failed"; readonly failure: Failure }
  | { readonly kind: "cancelled"; readonly by: string }
  | { readonly kind: "interrupted"; readonly by: string; readonly preserve_context: boolean };

/**
 * Closes what is open in `state`: tool calls, approvals, messages, and running steps, the innermost first.
 * Input requests have no such event: an interrupt leaves them open, and the run's end ends them with it.
 */
export function closingEvents(state: RunState, closing: Closing): NewEvent[] {
  const error = failureOf(closing);
  return [
    ...state.tool_calls
      .filter((call) => call.status !== "completed" && call.status !== "failed")
      .map((call): NewEvent<"tool_call.failed"> => ({
        type: "tool_call.failed",
        ...within(call),
        payload: { tool_call_id: call.tool_call_id, error },
      })),
    ...state.approvals
      .filter((approval) => approval.status === "open")
      .map((approval): NewEvent<"approval.resolved"> => ({
        type: "approval.resolved",
        ...within(approval),
        payload: { approval_id: approval.approval_id, decision: "deny", ...denial(closing) },
      })),
    ...state.messages
      .filter((message) => message.status === "open")
      .map((message): NewEvent<"message.completed"> => ({
        type: "message.completed",
        ...within(message),
        payload: {
          message_id: message.message_id,
          length: message.text.length,
          finish_reason: FINISH_REASON[closing.kind],
        },
      })),
    ...state.steps
      .filter((step) => step.status === "running")
      .map((step) => closedStep(step.step_id, closing, error))
      .toReversed(),
  ];
}

const FINISH_REASON: Readonly<Record<Closing["kind"], string>> = {
  completed: "stop",
  failed: "error",
  cancelled: "cancelled",
  interrupted: "interrupted",
};

function within(thing: { readonly step_id?: string | undefined }): { readonly step_id?: string } {
  return thing.step_id === undefined ? {} : { step_id: thing.step_id };
}

function closedStep(step_id: string, closing: Closing, error: Failure): NewEvent {
  // Without its context the step counts as never done: what it had shown goes with it.
  if (closing.kind === "interrupted" && !closing.preserve_context) {
    return { type: "step.superseded", step_id, payload: { step_id, reason: "interrupted" } };
  }
  return { type: "step.failed", step_id, payload: { step_id, error } };
}

function failureOf(closing: Closing): Failure {
  switch (closing.kind) {
    case "cancelled":
    case "interrupted":
      return byCode(closing.kind);
    case "failed":
      return closing.failure;
    case "completed":
      return {
        code: "agent_error",
        message: "the run ended before this was done",
        retryable: false,
      };
  }
}

function byCode(code: FailureCode): Failure {
  const { summary, retryable } = FAILURE_CODES[code];
  return { code, message: summary, retryable };
}

function denial(closing: Closing): Pick<EventPayload<"approval.resolved">, "by" | "reason"> {
  switch (closing.kind) {
    case "cancelled":
    case "interrupted":
      return { by: closing.by, reason: closing.kind };
    case "completed":
    case "failed":
      return { reason: "run ended" };
  }
}
