/** What an agent sees of its session: earlier runs, and the options that hold in it. */
import { ObjectGone, type RunEntry } from "@throughline/broker";
import type { MessageState, RunState } from "@throughline/protocol";
import type { PastRun, Session } from "./agent.ts";
import { finishedRun, type FinishedRun, patiently } from "./finished-run.ts";
import type { ScopeRun } from "./scope-run.ts";

const DEFAULT_LIMIT = 20;
/** Of the newest runs: so many may be under way, or started later, before an ended one is not found. */
const LISTED = 500;

export function sessionOf(run: ScopeRun, state: RunState): Session {
  return {
    id: run.ref.session,
    options: state.options,
    history: (limit = DEFAULT_LIMIT) => history(run, state.retry_of, limit),
  };
}

/**
 * By place in the session's stream and not by clocks: so it is the same whenever it is asked, and a run
 * knows every one whose end its starter may have seen.
 */
async function history(
  run: ScopeRun,
  retryOf: string | undefined,
  limit: number,
): Promise<readonly PastRun[]> {
  const { broker, ref, signal, queuedAt } = run;
  const entries = await patiently(() => broker.runs.list(ref, LISTED), signal);
  const repeated = repeatedBy(retryOf, entries);
  const past: FinishedRun[] = [];
  // Newest first: an entry that ended long before is looked at only if there is still room.
  for (const entry of entries) {
    if (past.length >= limit) break;
    if (entry.run === ref.run || repeated.has(entry.run)) continue;
    const finished = await patiently(() => finishedRun(broker, entry), signal);
    if (finished && finished.streamSeq < queuedAt) past.push(finished);
  }
  past.sort((a, b) => a.streamSeq - b.streamSeq);
  return Promise.all(past.map((finished) => pastRun(run, finished)));
}

/** A repetition takes the place of the run that it repeats, and of those which that one repeated. */
function repeatedBy(retryOf: string | undefined, entries: readonly RunEntry[]): Set<string> {
  const of = new Map(entries.map((entry) => [entry.run, entry.retry_of]));
  const repeated = new Set<string>();
  for (let at = retryOf; at !== undefined && !repeated.has(at); at = of.get(at)) repeated.add(at);
  return repeated;
}

async function pastRun(run: ScopeRun, { state }: FinishedRun): Promise<PastRun> {
  const whole = async (value: unknown): Promise<unknown> => {
    try {
      return await run.whole(value);
    } catch (error) {
      if (!(error instanceof ObjectGone)) throw error;
      run.log.info({ err: error, past: state.run_id }, "a part of an earlier run is not kept");
      return undefined;
    }
  };
  return {
    run_id: state.run_id ?? "",
    agent: state.agent ?? "",
    status: state.status,
    input: await whole(state.input),
    output: await whole(state.output),
    messages: state.messages
      .filter(isSaid)
      .map(({ role, channel, text }) => ({ role, channel, text })),
    ended_at: state.ended_at ?? 0,
  };
}

/** What a try had shown that then failed counts for nothing. */
function isSaid({ status, text, finish_reason }: MessageState): boolean {
  return status !== "superseded" && finish_reason !== "error" && text !== "";
}
