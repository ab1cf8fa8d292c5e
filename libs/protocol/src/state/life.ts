/* How a run's status, attempt and end follow from its log. */
import { isProgress } from "../event-kinds.ts";
import type { DurableEvent } from "../events/catalogue.ts";
import { compact } from "./list.ts";
import { dropLive } from "./messages.ts";
import type { RunState, RunStatus } from "./run-state.ts";

export function onQueued(state: RunState, event: DurableEvent<"run.queued">): RunState {
  const { payload } = event;
  return compact({
    ...state,
    run_id: event.run_id,
    session_id: event.session_id,
    agent: payload.agent,
    status: "queued" as const,
    input: payload.input,
    attachments: payload.attachments,
    tools: payload.tools ?? [],
    options: payload.options ?? {},
    by: payload.by,
    parent_run_id: payload.parent_run_id,
    retry_of: payload.retry_of,
    from_step: payload.from_step,
    deadline: payload.deadline,
    queued_at: event.ts,
  });
}

export function onStarted(state: RunState, event: DurableEvent<"run.started">): RunState {
  const { attempt, worker } = event.payload;
  return { ...state, status: "running", attempt, worker, started_at: event.ts, idle_attempts: 1 };
}

/**
 * A takeover must not unpause a run or forget that it waits: the pause and the open requests outlive
 * the worker. The same attempt again is the answer to `run.resume`.
 */
export function onResumed(state: RunState, event: DurableEvent<"run.resumed">): RunState {
  const { attempt, worker } = event.payload;
  const takeover = attempt > state.attempt;
  const status = takeover && state.status !== "queued" ? state.status : "running";
  const idle = takeover ? state.idle_attempts + 1 : state.idle_attempts;
  return withStatus({ ...dropLive(state), attempt, worker, idle_attempts: idle }, status);
}

export function onStatus(state: RunState, event: DurableEvent<"run.status">): RunState {
  return withStatus(state, event.payload.status);
}

export function onInterrupted(state: RunState, event: DurableEvent<"run.interrupted">): RunState {
  const { reason, by } = event.payload;
  return { ...dropLive(state), status: "interrupted", stopped: compact({ reason, by }) };
}

export function onCompleted(state: RunState, event: DurableEvent<"run.completed">): RunState {
  const { output, usage } = event.payload;
  return compact({
    ...ended(state, event.ts),
    status: "completed" as const,
    output,
    usage: usage === undefined ? state.usage : { ...state.usage, total: usage },
  });
}

export function onFailed(state: RunState, event: DurableEvent<"run.failed">): RunState {
  const { code, message, retryable } = event.payload;
  return { ...ended(state, event.ts), status: "failed", error: { code, message, retryable } };
}

export function onCancelled(state: RunState, event: DurableEvent<"run.cancelled">): RunState {
  const { reason, by } = event.payload;
  return { ...ended(state, event.ts), status: "cancelled", stopped: compact({ reason, by }) };
}

/** Attempts are idle until one of them does something that its successor need not do again. */
export function countIdle(state: RunState, type: string): RunState {
  return isProgress(type) && state.idle_attempts !== 0 ? { ...state, idle_attempts: 0 } : state;
}

function ended(state: RunState, ts: number): RunState {
  const { stopped: _, ...rest } = dropLive(state);
  return { ...rest, ended_at: ts };
}

/** `stopped` tells why a run is paused or was cancelled; once it goes on there is nothing to tell. */
function withStatus(state: RunState, status: RunStatus): RunState {
  if (status === "interrupted" || state.stopped === undefined) return { ...state, status };
  const { stopped: _, ...rest } = state;
  return { ...rest, status };
}
