/* Messages and steps: what a run has shown. */
import type { DurableEvent, EphemeralEvent } from "../events/catalogue.ts";
import { changed, compact, placed } from "./list.ts";
import type { MessageState, RunState, StepState } from "./run-state.ts";

/**
 * A message id that is there already is started anew, in its old place: ids come from the operation's
 * place in the program, so a part that is executed again after a takeover gives the same ones.
 */
export function onMessageStarted(
  state: RunState,
  event: DurableEvent<"message.started">,
): RunState {
  const { message_id, role, channel } = event.payload;
  const message: MessageState = compact({
    message_id,
    role,
    channel,
    step_id: event.step_id,
    key: event.key,
    text: "",
    live: "",
    status: "open" as const,
  });
  return { ...state, messages: placed(state.messages, "message_id", message) };
}

export function onChunk(state: RunState, event: DurableEvent<"model.chunk">): RunState {
  const { message_id, offset, text } = event.payload;
  return withMessage(state, message_id, (message) => {
    // Only text that goes on where the settled part ends leaves what is live after it true.
    const live = offset === message.text.length ? message.live.slice(text.length) : "";
    return { ...message, text: message.text.slice(0, offset) + text, live };
  });
}

export function onMessageCompleted(
  state: RunState,
  event: DurableEvent<"message.completed">,
): RunState {
  const { message_id, finish_reason } = event.payload;
  return withMessage(state, message_id, (message) => ({
    ...message,
    live: "",
    status: "completed",
    finish_reason,
  }));
}

/**
 * Costs the length of the delta: what is held is a rope, and neither `+` nor `length` walks it.
 *
 * Dropped: another attempt's (a fenced worker's, or one that this state has not got to yet), a paused or
 * ended run's, a closed message's, what is held already, and what leaves a gap, which the next chunk fills.
 */
export function onDelta(state: RunState, event: EphemeralEvent<"model.delta">): RunState {
  if (event.attempt !== state.attempt || !takesDeltas(state)) return state;
  const { message_id, offset, text } = event.payload;
  return withMessage(state, message_id, (message) => {
    const held = message.text.length + message.live.length;
    if (offset > held || offset + text.length <= held) return message;
    return { ...message, live: message.live + text.slice(held - offset) };
  });
}

export function onStepStarted(state: RunState, event: DurableEvent<"step.started">): RunState {
  const { step_id, name, parent_step_id } = event.payload;
  const step: StepState = compact({
    step_id,
    key: event.key,
    name,
    parent_step_id,
    status: "running" as const,
    started_seq: event.seq,
  });
  return { ...state, steps: placed(state.steps, "step_id", step) };
}

export function onStepCompleted(state: RunState, event: DurableEvent<"step.completed">): RunState {
  const { step_id, output } = event.payload;
  return withStep(state, step_id, (step) =>
    compact({ ...step, status: "completed" as const, output, error: undefined }),
  );
}

export function onStepFailed(state: RunState, event: DurableEvent<"step.failed">): RunState {
  const { step_id, error } = event.payload;
  return withStep(state, step_id, (step) => ({ ...step, status: "failed", error }));
}

/** The step's own messages go with it. Steps inside it that were completed stay: they are not done again. */
export function onStepSuperseded(
  state: RunState,
  event: DurableEvent<"step.superseded">,
): RunState {
  const { step_id } = event.payload;
  const next = withStep(dropLive(state), step_id, (step) => ({ ...step, status: "superseded" }));
  if (!next.messages.some((message) => message.step_id === step_id)) return next;
  const messages = next.messages.map((message) =>
    message.step_id === step_id ? { ...message, status: "superseded" as const } : message,
  );
  return { ...next, messages };
}

/** The barrier: what was shown and not stored is not part of the run. */
export function dropLive(state: RunState): RunState {
  if (state.messages.every((message) => message.live === "")) return state;
  const messages = state.messages.map((message) =>
    message.live === "" ? message : { ...message, live: "" },
  );
  return { ...state, messages };
}

function takesDeltas(state: RunState): boolean {
  switch (state.status) {
    case "running":
    case "waiting_approval":
    case "waiting_tools":
    case "waiting_input":
      return true;
    case "absent":
    case "queued":
    case "interrupted":
    case "completed":
    case "failed":
    case "cancelled":
      return false;
  }
}

function withMessage(
  state: RunState,
  id: string,
  change: (message: MessageState) => MessageState,
): RunState {
  const messages = changed(state.messages, "message_id", id, (message) =>
    message.status === "open" ? change(message) : message,
  );
  return messages === state.messages ? state : { ...state, messages };
}

function withStep(state: RunState, id: string, change: (step: StepState) => StepState): RunState {
  const steps = changed(state.steps, "step_id", id, change);
  return steps === state.steps ? state : { ...state, steps };
}
