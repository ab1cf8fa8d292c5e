/**
 * What a consumer has of each run, and from which cursor the rest is to be asked for.
 *
 * A run's events are numbered 1, 2, 3 …, so for each the answer is one of three: it is the next one, it
 * is there already, or something before it is missing.
 */
export type Verdict = "next" | "duplicate" | "hole";

/** From where a subscription starts: behind a cursor, or at a named place. */
export type Position = { readonly cursor: string } | { readonly from: From };
export type From = "start" | "latest" | "snapshot";

export interface Numbered {
  readonly run_id: string;
  readonly seq: number;
  readonly cursor: string;
}

interface Mark {
  readonly seq: number;
  readonly cursor: string;
}

interface Sample {
  readonly at: number;
  readonly cursor: string;
}

/**
 * Milliseconds. In a session's log the events of one run are chained, those of different runs are not:
 * a live copy that a node lost is found by its checks 250 ms, 1 s and 5 s later, and delivered then,
 * behind younger events of other runs. Whoever resumes elsewhere from one of those younger events
 * would never get it. So a session is resumed from a little before, and what comes twice is dropped.
 */
export const SESSION_MARGIN_MS = 6_000;
const SAMPLE_EVERY_MS = 1_000;

export class Ledger {
  readonly ofSession: boolean;
  #origin: Position;
  /** Every run was seen from its first event on, so a run that is new here has to begin with 1. */
  #whole: boolean;
  /** One small entry for each run of the session, kept for as long as the session is followed. */
  #marks = new Map<string, Mark>();
  #last: string | undefined;
  /** The newest that is older than the margin, and those after it; so at most margin / spacing + 1. */
  #samples: Sample[] = [];

  constructor(kind: "run" | "session", origin: Position) {
    this.ofSession = kind === "session";
    this.#origin = origin;
    this.#whole = isStart(origin);
  }

  clone(): Ledger {
    const copy = new Ledger(this.ofSession ? "session" : "run", this.#origin);
    copy.#whole = this.#whole;
    copy.#marks = new Map(this.#marks);
    copy.#last = this.#last;
    copy.#samples = [...this.#samples];
    return copy;
  }

  /** The cursor of the last event recorded; before the first, where the server said that it starts. */
  get cursor(): string | undefined {
    return this.#last ?? ("cursor" in this.#origin ? this.#origin.cursor : undefined);
  }

  judge(event: Numbered): Verdict {
    const mark = this.#marks.get(event.run_id);
    if (mark === undefined) return this.#whole && event.seq !== 1 ? "hole" : "next";
    if (event.seq <= mark.seq) return "duplicate";
    return event.seq === mark.seq + 1 ? "next" : "hole";
  }

  /** Call it only for what {@link judge} called "next". */
  record(event: Numbered, now: number): void {
    this.#marks.set(event.run_id, { seq: event.seq, cursor: event.cursor });
    this.#last = event.cursor;
    if (!this.ofSession) return;
    const newest = this.#samples.at(-1);
    if (newest !== undefined && now - newest.at < SAMPLE_EVERY_MS) return;
    this.#samples.push({ at: now, cursor: event.cursor });
    const kept = this.#samples.findLastIndex((sample) => now - sample.at >= SESSION_MARGIN_MS);
    if (kept > 0) this.#samples.splice(0, kept);
  }

  /** The server has named the place at which a subscription without a cursor started. */
  started(cursor: string): void {
    if (!("cursor" in this.#origin)) this.#origin = { cursor };
  }

  /** What was before is not continued: the next event of each run is taken as it comes. */
  restart(cursor: string): void {
    this.#origin = { cursor };
    this.#whole = false;
    this.#marks.clear();
    this.#last = undefined;
    this.#samples = [];
  }

  /** The state of a run up to and with `seq` is here. */
  baseline(run: Numbered): void {
    this.#marks.set(run.run_id, { seq: run.seq, cursor: run.cursor });
    if (!this.ofSession) this.#last = run.cursor;
  }

  /** Whether any event of this run, or its state, is here. */
  knows(runId: string): boolean {
    return this.#marks.has(runId);
  }

  /** This event is the first of its run that can be had: it is the next one. */
  admit(first: Numbered): void {
    this.#marks.set(first.run_id, { seq: first.seq - 1, cursor: first.cursor });
  }

  /** Where to go on after a loss of the connection. */
  resume(now: number): Position {
    if (!this.ofSession) return this.#last === undefined ? this.#origin : { cursor: this.#last };
    const safe = this.#samples.findLast((sample) => now - sample.at >= SESSION_MARGIN_MS);
    return safe === undefined ? this.#origin : { cursor: safe.cursor };
  }

  /** Where to go on when an event of this run is missing: behind the last that is here. */
  before(runId: string): Position {
    const mark = this.#marks.get(runId);
    return mark === undefined ? this.#origin : { cursor: mark.cursor };
  }
}

function isStart(origin: Position): boolean {
  return "from" in origin && origin.from === "start";
}
