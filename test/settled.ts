import { type DurableEvent, initialRunState, reduce, type RunState } from "@throughline/protocol";

export function stateOf(log: readonly DurableEvent[], run: string): RunState {
  return log.reduce<RunState>((state, event) => reduce(state, event), initialRunState(run));
}

/**
 * What a run has come to, without what may differ between an undisturbed run and one that was taken
 * over: times, attempts, positions, ids that hold an attempt, and what was superseded.
 */
export function settled(state: RunState): unknown {
  const keyOf = new Map(state.steps.map((step) => [step.step_id, step.key]));
  const place = (stepId: string | undefined): string | undefined =>
    stepId === undefined ? undefined : keyOf.get(stepId);
  return {
    status: state.status,
    output: state.output,
    error: state.error,
    stopped: state.stopped,
    app: state.app,
    memory: Object.fromEntries(
      Object.entries(state.memory).map(([key, value]) => [key, withoutSeq(value)]),
    ),
    usage: state.usage,
    messages: state.messages
      .filter(({ status }) => status !== "superseded")
      .map((message) => ({ ...without(message, "message_id"), step_id: place(message.step_id) })),
    steps: state.steps
      .filter(({ status }) => status !== "superseded")
      .map((step) => ({
        ...without(step, "step_id", "started_seq"),
        parent_step_id: place(step.parent_step_id),
      })),
    tool_calls: state.tool_calls.map((call) => ({
      ...without(call, "tool_call_id", "event_id", "batch_id", "claim", "outcome_seq"),
      step_id: place(call.step_id),
    })),
    approvals: state.approvals.map((approval) => ({
      ...without(approval, "approval_id", "event_id", "expires_at", "outcome_seq"),
      step_id: place(approval.step_id),
    })),
    inputs: state.inputs.map((input) => ({
      ...without(input, "input_id", "event_id"),
      step_id: place(input.step_id),
    })),
    inbox: state.inbox.map((item) => without(item, "event_id")),
    artifacts: state.artifacts,
  };
}

/** A look into the inbox remembers the event after which it looked. */
function withoutSeq(value: unknown): unknown {
  return typeof value === "object" && value !== null && "after" in value
    ? without(value, "after")
    : value;
}

function without(thing: object, ...names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(thing).filter(([name]) => !names.includes(name)));
}
