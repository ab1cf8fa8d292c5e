/** How a run ends, or how a takeover begins, in events. Pure. */
import {
  type Closing,
  closingEvents,
  FAILURE_CODES,
  type NewEvent,
  type RunState,
} from "@throughline/protocol";
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

/** Those that do. */
export type Final = Exclude<Ending, { readonly kind: "handback" }>;

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
  return closingEvents(state, closingOf(ending));
}

/** The run's last event. `state` as of everything stored before it. */
export function terminalEvent(state: RunState, ending: Final): NewEvent {
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

function closingOf(ending: Ending): Closing {
  switch (ending.kind) {
    case "cancelled":
      return { kind: "cancelled", by: ending.command.user };
    case "failed":
      return { kind: "failed", failure: ending.failure };
    case "completed":
    case "handback":
      return { kind: "completed" };
  }
}
