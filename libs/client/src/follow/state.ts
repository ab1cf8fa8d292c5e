/** How events become the state that is shown: of one run, or of a session's runs. */
import {
  type RunEvent,
  type RunState,
  type UnknownEvent,
  initialRunState,
  isTerminal,
  reduce,
} from "@throughline/protocol";

/** The runs of a session, by id. */
export interface SessionState {
  readonly session_id: string;
  /** All that go on, and the newest that are finished. */
  readonly runs: Readonly<Record<string, RunState>>;
}

/** Pure functions over one kind of state. */
export interface Book<S> {
  readonly initial: S;
  /** Gives the same object back where nothing changed. */
  apply(state: S, event: RunEvent | UnknownEvent): S;
  /** Takes a run's state from a snapshot, unless what is there is newer. */
  adopt(state: S, runId: string, run: RunState): S;
}

/** Finished runs that a session's state keeps. The server's own snapshots are of as many. */
const FINISHED_RUNS_KEPT = 20;

export function runBook(runId: string): Book<RunState> {
  return {
    initial: initialRunState(runId),
    apply: applyToRun,
    adopt: (state, _runId, run) => (run.seq > state.seq ? run : state),
  };
}

export function sessionBook(sessionId: string): Book<SessionState> {
  return {
    initial: { session_id: sessionId, runs: {} },
    apply(state, event) {
      if (!("run_id" in event) || event.run_id === undefined) return state;
      const before = state.runs[event.run_id];
      // A delta of a run of which nothing durable is here has nothing to be shown in.
      if (before === undefined && !("seq" in event)) return state;
      const after = applyToRun(before ?? initialRunState(event.run_id), event);
      return after === before ? state : withRun(state, event.run_id, after);
    },
    adopt(state, runId, run) {
      const before = state.runs[runId];
      return before !== undefined && before.seq >= run.seq ? state : withRun(state, runId, run);
    },
  };
}

export function isFinished(state: RunState): boolean {
  return isTerminal(`run.${state.status}`);
}

function applyToRun(state: RunState, event: RunEvent | UnknownEvent): RunState {
  const seq = "seq" in event ? event.seq : undefined;
  // Following from the middle on, there is no first event: what is known begins with this one.
  if (state.seq === 0 && seq !== undefined && seq > 1)
    return reduce({ ...state, seq: seq - 1 }, event);
  return reduce(state, event);
}

function withRun(state: SessionState, runId: string, run: RunState): SessionState {
  const runs = { ...state.runs, [runId]: run };
  if (isFinished(run)) dropOldest(runs);
  return { ...state, runs };
}

/** Of the finished; a run keeps its place in the record from its first event on. */
function dropOldest(runs: Record<string, RunState>): void {
  const finished = Object.keys(runs).filter((id) => {
    const run = runs[id];
    return run !== undefined && isFinished(run);
  });
  for (const id of finished.slice(0, -FINISHED_RUNS_KEPT)) delete runs[id];
}
