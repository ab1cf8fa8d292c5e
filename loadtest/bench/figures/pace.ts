/**
 * The arrival pattern, shared by the run writers and by the bare server: events one by one on a
 * fixed schedule, run after run in turn, so that both servers see the same number of events in
 * the same ticks and no two of one tick on the same socket.
 */

export interface Pattern {
  /** Events a second, over all runs. */
  readonly rate: number;
  readonly ms: number;
  readonly runs: number;
  /** Every so many deltas of a run its text is stored as a checkpoint; 0: all events are durable. */
  readonly deltasPerCheckpoint: number;
}

export interface Paced {
  readonly events: number;
  readonly seconds: number;
  /** How late the latest event was made, in ms. */
  readonly worstLagMs: number;
}

/** @internal How many events the schedule has due after `elapsedMs`. */
export function dueAfter(elapsedMs: number, pattern: Pattern): number {
  return Math.min(eventsOf(pattern), Math.floor((elapsedMs * pattern.rate) / 1000));
}

/** @internal */
export function eventsOf(pattern: Pattern): number {
  return Math.floor((pattern.ms * pattern.rate) / 1000);
}

/** Which run the i-th event is of, and whether it is stored. */
export function eventAt(i: number, pattern: Pattern): { run: number; durable: boolean } {
  const { runs, deltasPerCheckpoint: deltas } = pattern;
  const nth = Math.floor(i / runs);
  return { run: i % runs, durable: nth % (deltas + 1) === deltas };
}

/** Makes the pattern's events when they are due; resolves when the last one is made. */
export function paced(pattern: Pattern, make: (i: number) => void): Promise<Paced> {
  const total = eventsOf(pattern);
  const start = performance.now();
  let made = 0;
  let worstLagMs = 0;
  return new Promise((resolve, reject) => {
    const turn = (): void => {
      try {
        const elapsed = performance.now() - start;
        const due = dueAfter(elapsed, pattern);
        if (made < due) {
          worstLagMs = Math.max(worstLagMs, elapsed - ((made + 1) * 1000) / pattern.rate);
        }
        for (; made < due; made += 1) make(made);
        if (made < total) setTimeout(turn, 1);
        else resolve({ events: total, seconds: (performance.now() - start) / 1000, worstLagMs });
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    };
    turn();
  });
}
