interface Interval {
  readonly after: number;
  to: number;
}

/** Older ones are forgotten: a lost live copy is found within a minute, not after so many lags. */
const KEPT = 32;

/**
 * Which parts of a session's log a client has had from the log itself, where nothing can be
 * missing, rather than from what the tail had delivered by then. It decides who still needs a
 * message that the tail finds missing later: without it, who had read it from the log has it twice.
 */
export class LogFed {
  readonly #intervals: Interval[];

  /** What lies at or below the start is the client's own matter. */
  constructor(start: number) {
    this.#intervals = [{ after: -1, to: start }];
  }

  /** Everything in (`after`, `to`] was read from the log. */
  add(after: number, to: number): void {
    const last = this.#intervals.at(-1);
    if (last !== undefined && last.to >= after) {
      last.to = Math.max(last.to, to);
      return;
    }
    this.#intervals.push({ after, to });
    if (this.#intervals.length > KEPT) this.#intervals.splice(1, 1);
  }

  has(streamSeq: number): boolean {
    return this.#intervals.some(({ after, to }) => after < streamSeq && streamSeq <= to);
  }
}
