import type { Cursor } from "@throughline/protocol";

/** Events of one run that were sent one after the other. */
interface Stretch {
  readonly tag: string;
  firstSeq: number;
  lastSeq: number;
  readonly firstStreamSeq: number;
  lastStreamSeq: number;
}

/**
 * `freed`: so many events are acknowledged by it. `behind`: nothing new, as of an `ack` that came twice.
 * `ahead`: of what was sent. `foreign`: of no event of this subscription.
 */
export type AckOutcome =
  | { readonly kind: "freed"; readonly events: number }
  | { readonly kind: "behind" | "ahead" | "foreign" };

/**
 * The events of one subscription that were sent and are not acknowledged, at most `window` of them. A cursor
 * says how far its client is, not how many events of a session lie before it, so they are noted as they are
 * sent: one stretch for each change of the run, at most as many as the window has events.
 */
export class Credit {
  readonly #window: number;
  /** Of a run: cursors with another tag are of another run. */
  readonly #tag: string | undefined;
  #stretches: Stretch[] = [];
  #unacknowledged = 0;

  constructor(window: number, tag: string | undefined) {
    this.#window = window;
    this.#tag = tag;
  }

  /** Events that may be sent now. */
  get left(): number {
    return this.#window - this.#unacknowledged;
  }

  sent(tag: string, seq: number, streamSeq: number): void {
    this.#unacknowledged += 1;
    const last = this.#stretches.at(-1);
    if (last !== undefined && last.tag === tag && last.lastSeq + 1 === seq) {
      last.lastSeq = seq;
      last.lastStreamSeq = streamSeq;
      return;
    }
    this.#stretches.push({
      tag,
      firstSeq: seq,
      lastSeq: seq,
      firstStreamSeq: streamSeq,
      lastStreamSeq: streamSeq,
    });
  }

  /** Everything through this cursor has been taken in. `sentThrough`: the stream sequence sent last. */
  acknowledge({ seq, streamSeq, tag }: Cursor, sentThrough: number): AckOutcome {
    if (this.#tag !== undefined && tag !== this.#tag) return { kind: "foreign" };
    if (streamSeq > sentThrough) return { kind: "ahead" };
    const [first] = this.#stretches;
    if (first === undefined || streamSeq < first.firstStreamSeq) return { kind: "behind" };
    const at = this.#stretches.findIndex((stretch) => streamSeq <= stretch.lastStreamSeq);
    const stretch = this.#stretches[at];
    if (stretch === undefined) return { kind: "behind" };
    if (streamSeq < stretch.firstStreamSeq || tag !== stretch.tag) return { kind: "foreign" };
    if (seq > stretch.lastSeq) return { kind: "ahead" };
    const events = this.#free(at, stretch, seq);
    return events === 0 ? { kind: "behind" } : { kind: "freed", events };
  }

  #free(at: number, stretch: Stretch, seq: number): number {
    const before = this.#unacknowledged;
    for (const { firstSeq, lastSeq } of this.#stretches.slice(0, at)) {
      this.#unacknowledged -= lastSeq - firstSeq + 1;
    }
    // An event at or before the stretch's first: of a message whose beginning was acknowledged before.
    this.#unacknowledged -= Math.max(0, seq - stretch.firstSeq + 1);
    stretch.firstSeq = Math.max(stretch.firstSeq, seq + 1);
    this.#stretches.splice(0, stretch.firstSeq > stretch.lastSeq ? at + 1 : at);
    return before - this.#unacknowledged;
  }
}
