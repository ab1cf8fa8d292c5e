/** Makes the events of a log by hand, for tests of what is concluded from one. */
import {
  type DurableEvent,
  initialRunState,
  type NewEvent,
  reduce,
  type RunState,
} from "@throughline/protocol";

/** The state after `run.queued`, `run.started` and the given events. */
export function stateOf(...events: NewEvent[]): RunState {
  const all: NewEvent[] = [
    {
      type: "run.queued",
      payload: { agent: "a", input: null, by: "ann", deadline: 2_000_000_000_000 },
    },
    { type: "run.started", payload: { attempt: 1, worker: "w" } },
    ...events,
  ];
  return all.reduce(
    (state, event, index) => reduce(state, stored(event, index + 1)),
    initialRunState("run_1"),
  );
}

export function stored(event: NewEvent, seq: number): DurableEvent {
  return { ...event, session_id: "ses_1", run_id: "run_1", seq, event_id: `run_1.${seq}`, ts: seq };
}

export const stepStarted = (id: string, key: string, parent?: string): NewEvent => ({
  type: "step.started",
  step_id: id,
  key,
  payload: { step_id: id, name: id, ...(parent === undefined ? {} : { parent_step_id: parent }) },
});

export const stepCompleted = (id: string, output: unknown): NewEvent => ({
  type: "step.completed",
  step_id: id,
  payload: { step_id: id, output },
});

export const messageStarted = (id: string, key: string, stepId?: string): NewEvent => ({
  type: "message.started",
  key,
  ...(stepId === undefined ? {} : { step_id: stepId }),
  payload: { message_id: id, role: "assistant", channel: "text" },
});

export const chunk = (id: string, offset: number, text: string): NewEvent => ({
  type: "model.chunk",
  payload: { message_id: id, offset, text },
});

export const messageCompleted = (id: string, length: number): NewEvent => ({
  type: "message.completed",
  payload: { message_id: id, length, finish_reason: "stop" },
});
