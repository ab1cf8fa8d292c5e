/* Events for the reducer's tests, in as few words as may be. */
import {
  initialRunState,
  reduce,
  type EphemeralEvent,
  type MessageState,
  type NewEvent,
  type RunState,
  type UnknownEvent,
} from "../src/index.ts";

export const RUN = "run_1";

/** Numbers events and reduces them; `ts` is the seq times 1,000. */
export function after(
  state: RunState,
  ...events: readonly (NewEvent | EphemeralEvent)[]
): RunState {
  return events.reduce(
    (now, event) => reduce(now, "session_id" in event ? event : stored(now.seq + 1, event)),
    state,
  );
}

export function stored(
  seq: number,
  event: Pick<UnknownEvent, "type" | "payload" | "reply_to">,
): UnknownEvent {
  const envelope = {
    session_id: "ses_1",
    run_id: RUN,
    seq,
    event_id: `${RUN}.${seq}`,
    ts: seq * 1_000,
  };
  return { ...envelope, ...event };
}

export function delta(
  offset: number,
  text: string,
  rest: Partial<EphemeralEvent<"model.delta">> = {},
): EphemeralEvent {
  const payload = { message_id: "msg_1", offset, text };
  return {
    type: "model.delta",
    session_id: "ses_1",
    run_id: RUN,
    attempt: 1,
    ts: 1,
    payload,
    ...rest,
  };
}

export const chunk = (offset: number, text: string): NewEvent => ({
  type: "model.chunk",
  payload: { message_id: "msg_1", offset, text },
});
export const queued: NewEvent = {
  type: "run.queued",
  payload: { agent: "llm", input: null, by: "alice", deadline: 9e12, options: { model: "m" } },
  reply_to: "cmd_1",
  reply_by: "alice",
};
export const started: NewEvent = { type: "run.started", payload: { attempt: 1, worker: "w1" } };
export const opened = (message_id = "msg_1", step_id?: string): NewEvent => ({
  type: "message.started",
  payload: { message_id, role: "assistant", channel: "text" },
  ...(step_id === undefined ? {} : { step_id }),
});
export const resumed = (attempt: number): NewEvent => ({
  type: "run.resumed",
  payload: { attempt, worker: `w${attempt}` },
});
export const interrupted: NewEvent = {
  type: "run.interrupted",
  payload: { preserve_context: true, by: "bob", reason: "wait" },
};
export const step = (step_id: string, parent_step_id?: string): NewEvent => ({
  type: "step.started",
  payload: { step_id, name: step_id, ...(parent_step_id === undefined ? {} : { parent_step_id }) },
  key: `run/${step_id}#0`,
});
export const called: NewEvent = {
  type: "tool_call.created",
  payload: {
    tool_call_id: "tc_1",
    name: "shell",
    args: {},
    executor: "client",
    requires_approval: false,
  },
};

export const running = after(initialRunState(RUN), queued, started);
export const writing = after(running, opened());

/** The state's first message; throws if there is none. */
export function first(state: RunState): MessageState {
  const [message] = state.messages;
  if (message === undefined) throw new Error("no message");
  return message;
}
