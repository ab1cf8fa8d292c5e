/** What was stored of a run before, by key. Pure. */
import type { MessageState, RunState, StepState, ToolCallState } from "@throughline/protocol";

export interface DoneOperations {
  /** A step that was completed or has failed: neither is done again by itself. */
  step(key: string): StepState | undefined;
  /** How often it has failed in this try of the step around it, interruptions not counted. */
  failures(key: string): number;
  /** Was the message written to its end, outside of any step? A step that is done again writes its messages again. */
  hasMessage(key: string): boolean;
  /** A call that was recorded, whole or not. */
  toolCall(key: string): ToolCallState | undefined;
  /** How many events without a trace of their own the scope has stored. */
  emitted(scope: string): number;
}

/** Of a state in which the takeover, or the interrupt, has closed what was cut short. */
export function doneOperations(state: RunState): DoneOperations {
  // The latest try of each decides.
  const steps = byKey<StepState>(state.steps);
  const byId = new Map(state.steps.map((step) => [step.step_id, step]));
  const failures = new Map<string, number>();
  for (const step of state.steps) {
    // With a new try of the step around it, it has all its tries again.
    if (step.key === undefined || !hasFailed(step) || isUndone(step, byId)) continue;
    failures.set(step.key, (failures.get(step.key) ?? 0) + 1);
  }
  const messages = byKey<MessageState>(state.messages);
  const calls = byKey<ToolCallState>(state.tool_calls);
  return {
    step: (key) => {
      const step = steps.get(key);
      if (step?.status === "completed") return step;
      return step && hasFailed(step) && !isUndone(step, byId) ? step : undefined;
    },
    failures: (key) => failures.get(key) ?? 0,
    hasMessage: (key) => {
      const message = messages.get(key);
      return (
        message !== undefined &&
        message.step_id === undefined &&
        message.status === "completed" &&
        message.finish_reason !== "interrupted"
      );
    },
    toolCall: (key) => calls.get(key),
    emitted: (scope) => (Object.hasOwn(state.emits, scope) ? (state.emits[scope] ?? 0) : 0),
  };
}

/** An interrupted step is closed as failed, and it has not had its say. */
function hasFailed(step: StepState): boolean {
  return step.status === "failed" && step.error?.code !== "interrupted";
}

/** Whether the step around it has failed: that one is done again only to try anew what failed in it. */
function isUndone(step: StepState, byId: ReadonlyMap<string, StepState>): boolean {
  const around = step.parent_step_id === undefined ? undefined : byId.get(step.parent_step_id);
  return around !== undefined && (hasFailed(around) || isUndone(around, byId));
}

/**
 * What earlier tries of a step had written in the channel `text` when they were interrupted, the oldest
 * first. Of tries that lost their context the messages are superseded.
 */
export function interruptedTexts(state: RunState, key: string): readonly string[] {
  const tries = new Set(
    state.steps.flatMap((step) =>
      step.key === key && step.status === "failed" && !hasFailed(step) ? [step.step_id] : [],
    ),
  );
  if (tries.size === 0) return [];
  return state.messages.flatMap(({ step_id, channel, status, text }) => {
    const shown = step_id !== undefined && tries.has(step_id) && status === "completed";
    return shown && channel === "text" && text !== "" ? [text] : [];
  });
}

function byKey<T extends { readonly key?: string | undefined }>(all: readonly T[]): Map<string, T> {
  return new Map(all.flatMap((one) => (one.key === undefined ? [] : [[one.key, one] as const])));
}
