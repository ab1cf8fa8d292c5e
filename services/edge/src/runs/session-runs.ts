import type { RunEntry, SessionRef } from "@throughline/broker";

/** What a session's lists are made from. */
export interface RunSource {
  /** From the index: newest first. Every run that a worker has begun is in it. */
  list(ref: SessionRef): Promise<readonly RunEntry[]>;
  /** Every run of which something is in the log now, as its leader says. */
  logged(ref: SessionRef): Promise<readonly string[]>;
}

/** Of finished runs, so many are shown to who comes to a session. */
const NEWEST_RUNS = 20;

/**
 * Pure: the runs of a session that somebody who comes to it is shown, unfinished ones first, then
 * newest first. A run that the index has missed (its note failed) counts as unfinished: the log decides.
 */
export function shownRuns(
  entries: readonly RunEntry[],
  logged: readonly string[],
  newest: number = NEWEST_RUNS,
): readonly string[] {
  const known = new Set(entries.map((entry) => entry.run));
  const unnoted = logged.filter((run) => !known.has(run));
  const unfinished = entries.filter((entry) => entry.ended_at === undefined);
  const shown = [...unnoted, ...unfinished.map((entry) => entry.run)];
  const rest = entries.slice(0, newest).map((entry) => entry.run);
  return [...new Set([...shown, ...rest])];
}
