/** How a run ends, or how a takeover begins, in events. Pure. */
import { FAILURE_CODES, type NewEvent, type RunState } from "@throughline/protocol";
import type { Failure, StopReason } from "./failure.ts";

/** The cancel command that was applied. */
export interface CancelRequest {
  readonly id: string;
  readonly user: string;
  /** Of the command in its stream: the watermark. */
  readonly streamSeq: number;
  readonly reason: string | undefined;
}

/** Ways out of a run for this worker. All but `handback` write the run's terminal event. */
export type Ending =
  | { readonly kind: "completed"; readonly output: unknown }
  | {
      readonly kind: "failed";
      readonly failure: Failure;
      readonly by: "agent" | "deadline" | "worker";
    }
  | { readonly kind: "cancelled"; readonly command: CancelRequest }
  | { readonly kind: "handback"; readonly why: string };

/** A failure with the code's own row for what it means. */
export function failed(
  code: keyof typeof FAILURE_CODES,
  message: string,
  by: "agent" | "deadline" | "worker" = "worker",
): Ending & { readonly kind: "failed" } {
  return {
    kind: "failed",
    failure: { code, message, retryable: FAILURE_CODES[code].retryable },
    by,
  };
}

/** What the agent is told by its signal. */
export function stopReason(ending: Ending): StopReason {
  switch (ending.kind) {
    case "completed":
      return "ended";
    case "failed":
      return ending.by === "deadline" ? "deadline" : "failed";
    case "cancelled":
      return "cancelled";
    case "handback":
      return "shutdown";
  }
}

/**
 * Takes over what was cut short: steps that were running are superseded, the innermost first. Messages
 * outside of steps stay open: the agent begins each anew, with the same id.
 */
export function supersedeOpenSteps(state: RunState): NewEvent[] {
  return state.steps
    .filter((step) => step.status === "running")
    .map((step): NewEvent => ({
      type: "step.superseded",
      step_id: step.step_id,
      payload: { step_id: step.step_id, reason: "cut short: another worker goes on" },
    }))
    .toReversed();
}

/** Closes what is open, so that nothing is left hanging for those who show the run (C24). */
export function closeOpen(state: RunState, ending: Ending): NewEvent[] {
  const error = openFailure(ending);
  const events: NewEvent[] = [];
  for (const call of state.tool_calls) {
    if (call.status === "completed" || call.status === "failed") continue;
    events.push({
      type: "tool_call.failed",
      ...(call.step_id === undefined ? {} : { step_id: call.step_id }),
      payload: { tool_call_id: call.tool_call_id, error },
    });
  }
  for (const message of state.messages) {
    if (message.status !== "open") continue;
    events.push({
      type: "message.completed",
      ...(message.step_id === undefined ? {} : { step_id: message.step_id }),
      payload: {
        message_id: message.message_id,
        length: message.text.length,
        finish_reason: finishReason(ending),
      },
    });
  }
  for (const step of state.steps.toReversed()) {
    if (step.status !== "running") continue;
    events.push({
      type: "step.failed",
      step_id: step.step_id,
      payload: { step_id: step.step_id, error },
    });
  }
  return events;
}

/** The run's last event. `state` as of everything stored before it. */
export function terminalEvent(
  state: RunState,
  ending: Exclude<Ending, { kind: "handback" }>,
): NewEvent {
  switch (ending.kind) {
    case "completed": {
      const used = Object.keys(state.usage.models).length > 0;
      return {
        type: "run.completed",
        payload: {
          ...(ending.output === undefined ? {} : { output: ending.output }),
          ...(used ? { usage: state.usage.total } : {}),
        },
      };
    }
    case "failed":
      return { type: "run.failed", payload: ending.failure };
    case "cancelled": {
      const { id, user, reason } = ending.command;
      return {
        type: "run.cancelled",
        reply_to: id,
        reply_by: user,
        payload: { by: user, ...(reason === undefined ? {} : { reason }) },
      };
    }
  }
}

function openFailure(ending: Ending): Failure {
  switch (ending.kind) {
    case "cancelled":
      return {
        code: "cancelled",
        message: FAILURE_CODES.cancelled.summary,
        retryable: FAILURE_CODES.cancelled.retryable,
      };
    case "failed":
      return ending.failure;
    case "completed":
    case "handback":
      return {
        code: "agent_error",
        message: "the run ended before this was done",
        retryable: false,
      };
  }
}

function finishReason(ending: Ending): string {
  switch (ending.kind) {
    case "cancelled":
      return "cancelled";
    case "failed":
      return "error";
    case "completed":
    case "handback":
      return "stop";
  }
}
