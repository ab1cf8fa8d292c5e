/** What earlier attempts of a run have stored, by key. Pure. */
import type { MessageState, RunState, StepState, ToolCallState } from "@throughline/protocol";

export interface DoneOperations {
  /** A step that was completed or has failed: neither is done again. */
  step(key: string): StepState | undefined;
  /** Was the message written to its end, outside of any step that was cut short? */
  hasMessage(key: string): boolean;
  /** A call that was recorded, whole or not. */
  toolCall(key: string): ToolCallState | undefined;
  /** How many events without a trace of their own the scope has stored. */
  emitted(scope: string): number;
}

/** Of a state in which the takeover has superseded what was cut short. */
export function doneOperations(state: RunState): DoneOperations {
  const steps = byKey<StepState>(
    state.steps.filter((step) => step.status === "completed" || step.status === "failed"),
  );
  const messages = byKey<MessageState>(
    state.messages.filter((message) => message.status === "completed"),
  );
  const calls = byKey<ToolCallState>(state.tool_calls);
  return {
    step: (key) => steps.get(key),
    hasMessage: (key) => messages.has(key),
    toolCall: (key) => calls.get(key),
    emitted: (scope) => (Object.hasOwn(state.emits, scope) ? (state.emits[scope] ?? 0) : 0),
  };
}

function byKey<T extends { readonly key?: string | undefined }>(all: readonly T[]): Map<string, T> {
  return new Map(all.flatMap((one) => (one.key === undefined ? [] : [[one.key, one] as const])));
}
