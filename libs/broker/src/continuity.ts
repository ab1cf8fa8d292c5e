import type { LogMessage } from "./headers.ts";

/** What is missing before a message may be delivered: stored messages of `run` in (after, upTo]. */
export interface Gap {
  readonly run: string;
  readonly after: number;
  readonly upTo: number;
}

export type Verdict =
  | { readonly kind: "next"; readonly late: boolean }
  /** Delivered before, or at or before the start: a live copy can be repeated after a fault. */
  | { readonly kind: "repeat" }
  | { readonly kind: "gap"; readonly gap: Gap }
  /** The log contradicts itself or what was delivered. Never guessed over. */
  | { readonly kind: "corrupt"; readonly reason: string };

/**
 * Decides, message by message, whether a tail may deliver. Pure: no clock, no I/O.
 * `verdict` never changes anything, `accept` notes a delivery.
 */
export interface Continuity<M> {
  /** Highest stream sequence delivered, or where the tail began. */
  readonly position: number;
  verdict(message: M): Verdict;
  accept(message: M): void;
  /** The gap before `message` is confirmed to be gone from the log: may `message` be delivered all the same? */
  gone(message: M): Verdict;
}

interface Chain {
  readonly streamSeq: number;
  readonly lastSeq: number;
  readonly epoch: string;
}

const NEXT: Verdict = { kind: "next", late: false };
const LATE: Verdict = { kind: "next", late: true };
const REPEAT: Verdict = { kind: "repeat" };

/** Ended runs remembered per tail, so that a repeated live copy of one is not taken for a new run. */
const ENDED_KEPT = 4_096;

/**
 * Continuity of EVENTS. Each message names its run's previous one on whichever subject (`Tl-Prev`):
 * `Nats-Last-Sequence` is per exact subject, so it cannot see a lost `q` before the first `e`,
 * and it is 0 after expiry.
 */
export class EventChains implements Continuity<LogMessage> {
  readonly #start: number;
  #position: number;
  /** Entries go at the run's terminal; a run without one fails by its deadline. */
  readonly #chains: Map<string, Chain> = new Map();
  readonly #ended: Map<string, number> = new Map();

  constructor(start: number) {
    this.#start = start;
    this.#position = start;
  }

  get position(): number {
    return this.#position;
  }

  /** Runs seen and not ended: what a position check of a session must ask about. */
  openRuns(): IterableIterator<string> {
    return this.#chains.keys();
  }

  isOpen(run: string): boolean {
    return this.#chains.has(run);
  }

  hasEnded(run: string): boolean {
    return this.#ended.has(run);
  }

  /** Last delivered stream sequence of a run; undefined when nothing of it was. */
  reached(run: string): number | undefined {
    return this.#chains.get(run)?.streamSeq ?? this.#ended.get(run);
  }

  verdict(m: LogMessage): Verdict {
    const chain = this.#chains.get(m.run);
    if (chain) return this.#behind(m, chain);
    if (m.streamSeq <= this.#start || this.#ended.has(m.run)) return REPEAT;
    if (m.prev > this.#start) {
      return { kind: "gap", gap: { run: m.run, after: this.#start, upTo: m.prev } };
    }
    return this.#first(m);
  }

  #behind(m: LogMessage, chain: Chain): Verdict {
    if (m.epoch !== chain.epoch) {
      return corrupt(m, `epoch ${m.epoch} follows ${chain.epoch}: another incarnation of the run`);
    }
    if (m.streamSeq <= chain.streamSeq) return REPEAT;
    if (m.prev > chain.streamSeq) {
      return { kind: "gap", gap: { run: m.run, after: chain.streamSeq, upTo: m.prev } };
    }
    if (m.prev < chain.streamSeq || m.firstSeq !== chain.lastSeq + 1) {
      return corrupt(m, `it does not follow seq ${chain.lastSeq} at ${chain.streamSeq}`);
    }
    return m.streamSeq > this.#position ? NEXT : LATE;
  }

  #first(m: LogMessage): Verdict {
    if (m.prev === 0 && m.firstSeq !== 1)
      return corrupt(m, "the run's first message has a later seq");
    return m.streamSeq > this.#position ? NEXT : LATE;
  }

  gone(m: LogMessage): Verdict {
    if (this.#chains.has(m.run)) return corrupt(m, "what lies before it is gone from the log");
    // Nothing of this run was delivered: it begins with what is still stored.
    return m.streamSeq > this.#position ? NEXT : LATE;
  }

  accept(m: LogMessage): void {
    if (m.streamSeq > this.#position) this.#position = m.streamSeq;
    if (!m.end) {
      this.#chains.set(m.run, { streamSeq: m.streamSeq, lastSeq: m.lastSeq, epoch: m.epoch });
      return;
    }
    this.#chains.delete(m.run);
    this.#ended.set(m.run, m.streamSeq);
    if (this.#ended.size > ENDED_KEPT) {
      for (const oldest of this.#ended.keys()) {
        this.#ended.delete(oldest);
        break;
      }
    }
  }
}

function corrupt(m: LogMessage, why: string): Verdict {
  const what = `seq ${m.firstSeq}–${m.lastSeq} of ${m.run} at ${m.streamSeq} (previous ${m.prev})`;
  return { kind: "corrupt", reason: `${what}: ${why}` };
}

export interface SubjectMessage {
  readonly run: string;
  readonly streamSeq: number;
  /** `Nats-Last-Sequence`: the subject's previous message as stored; 0 where not known. */
  readonly lastOnSubject: number;
}

/** Continuity of COMMANDS: one subject a run, so NATS's own chain serves. A gap is one *greater than* the position. */
export class SubjectChain<M extends SubjectMessage> implements Continuity<M> {
  #position: number;

  constructor(start: number) {
    this.#position = start;
  }

  get position(): number {
    return this.#position;
  }

  verdict(m: M): Verdict {
    if (m.streamSeq <= this.#position) return REPEAT;
    if (m.lastOnSubject > this.#position) {
      return { kind: "gap", gap: { run: m.run, after: this.#position, upTo: m.lastOnSubject } };
    }
    return NEXT;
  }

  gone(): Verdict {
    return NEXT;
  }

  accept(m: M): void {
    this.#position = m.streamSeq;
  }
}
