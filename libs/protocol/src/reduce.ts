/*
 * The reducer: one pure function from a run's log to its state. The worker makes snapshots with it and
 * finds by it what is done, clients show what it gives, so there is one meaning of a log (SPEC.md).
 *
 *   reduce(snapshot at n, events n+1 … m)  =  reduce(events 1 … m)
 *
 * Events that were seen change nothing. Ephemeral events only ever touch a message's `live`, which the
 * next chunk, the message's end or a barrier settles; so their loss, doubling or late arrival is gone
 * by then.
 */
import { isDurableType } from "./event-kinds.ts";
import type { DurableEvent, RunEvent, UnknownEvent } from "./events/catalogue.ts";
import {
  countIdle,
  onCancelled,
  onCompleted,
  onFailed,
  onInterrupted,
  onQueued,
  onResumed,
  onStarted,
  onStatus,
} from "./state/life.ts";
import {
  onChunk,
  onDelta,
  onMessageCompleted,
  onMessageStarted,
  onStepCompleted,
  onStepFailed,
  onStepStarted,
  onStepSuperseded,
} from "./state/messages.ts";
import {
  onApprovalRequested,
  onApprovalResolved,
  onInputReceived,
  onInputRequested,
  onToolCallCompleted,
  onToolCallCreated,
  onToolCallFailed,
  onToolCallStatus,
} from "./state/requests.ts";
import {
  onArtifact,
  onMemory,
  onStateUpdated,
  onUsage,
  recordAnswer,
  recordEmit,
} from "./state/results.ts";
import type { RunState } from "./state/run-state.ts";

/** A durable event came before its predecessor: whoever feeds the reducer has lost one. */
export class HoleError extends Error {
  /** The `seq` that should have come. */
  readonly expected: number;
  readonly got: number;

  constructor(expected: number, got: number) {
    super(`event ${got} came where ${expected} was next`);
    this.name = "HoleError";
    this.expected = expected;
    this.got = got;
  }
}

/** An event of another run: whoever feeds the reducer mixes up runs. */
export class ForeignEventError extends Error {
  constructor(runId: string, eventRunId: string) {
    super(`event of run ${eventRunId} given to the state of run ${runId}`);
    this.name = "ForeignEventError";
  }
}

/**
 * The state after one more event; the same object if the event changes nothing.
 *
 * @throws {HoleError} a durable event is not the next one
 * @throws {ForeignEventError} a durable event is another run's
 */
export function reduce(state: RunState, event: RunEvent | UnknownEvent): RunState {
  if (isStored(event)) return reduceDurable(state, event);
  return isDelta(event) && event.run_id === state.run_id ? onDelta(state, event) : state;
}

type Stored = (DurableEvent | UnknownEvent) & { readonly seq: number };

function isStored(event: RunEvent | UnknownEvent): event is Stored {
  return "seq" in event && event.seq !== undefined;
}

function isDelta(
  event: RunEvent | UnknownEvent,
): event is Extract<RunEvent, { type: "model.delta" }> {
  return event.type === "model.delta";
}

/** Types of a newer version have a place in the order, and no meaning here. */
function isKnown(event: DurableEvent | UnknownEvent): event is DurableEvent {
  return isDurableType(event.type);
}

function reduceDurable(state: RunState, event: Stored): RunState {
  if (state.run_id !== undefined && event.run_id !== undefined && event.run_id !== state.run_id) {
    throw new ForeignEventError(state.run_id, event.run_id);
  }
  if (event.seq <= state.seq) return state;
  if (event.seq !== state.seq + 1) throw new HoleError(state.seq + 1, event.seq);
  const effect = isKnown(event)
    ? countIdle(recordEmit(apply(state, event), event), event.type)
    : state;
  const next = recordAnswer(effect, event);
  return { ...next, seq: event.seq, ...(event.ts === undefined ? {} : { updated_at: event.ts }) };
}

function apply(state: RunState, event: DurableEvent): RunState {
  switch (event.type) {
    case "run.queued":
      return onQueued(state, event);
    case "run.started":
      return onStarted(state, event);
    case "run.resumed":
      return onResumed(state, event);
    case "run.status":
      return onStatus(state, event);
    case "run.interrupted":
      return onInterrupted(state, event);
    case "run.completed":
      return onCompleted(state, event);
    case "run.failed":
      return onFailed(state, event);
    case "run.cancelled":
      return onCancelled(state, event);
    case "step.started":
      return onStepStarted(state, event);
    case "step.completed":
      return onStepCompleted(state, event);
    case "step.failed":
      return onStepFailed(state, event);
    case "step.superseded":
      return onStepSuperseded(state, event);
    case "message.started":
      return onMessageStarted(state, event);
    case "model.chunk":
      return onChunk(state, event);
    case "message.completed":
      return onMessageCompleted(state, event);
    case "tool_call.created":
      return onToolCallCreated(state, event);
    case "tool_call.status":
      return onToolCallStatus(state, event);
    case "tool_call.completed":
      return onToolCallCompleted(state, event);
    case "tool_call.failed":
      return onToolCallFailed(state, event);
    case "approval.requested":
      return onApprovalRequested(state, event);
    case "approval.resolved":
      return onApprovalResolved(state, event);
    case "input.requested":
      return onInputRequested(state, event);
    case "input.received":
      return onInputReceived(state, event);
    case "artifact.ready":
      return onArtifact(state, event);
    case "usage.updated":
      return onUsage(state, event);
    case "state.updated":
      return onStateUpdated(state, event);
    case "memory.updated":
      return onMemory(state, event);
    case "custom":
    case "command.rejected":
      return state;
  }
}
