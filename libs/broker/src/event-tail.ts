import type { EventChains } from "./continuity.ts";
import type { RawMessage } from "./direct-read.ts";
import { LogCorrupt } from "./errors.ts";
import type { LogMessage } from "./headers.ts";
import type { RunRef, SessionRef } from "./ids.ts";
import type { Checkable, PositionChecks } from "./position-checks.ts";
import { eventSubject, parseEventSubject, streamName } from "./subjects.ts";
import type { Tail } from "./tail.ts";

type Filter = ({ readonly kind: "run" } & RunRef) | ({ readonly kind: "session" } & SessionRef);

/** A tail of EVENTS together with its position checks. */
export class EventTail implements Checkable {
  readonly stream: string;
  readonly #tail: Tail<LogMessage>;
  readonly #chains: EventChains;
  readonly #filter: Filter;
  readonly #shard: number;
  readonly #checks: PositionChecks;
  readonly #start: number;

  constructor(
    tail: Tail<LogMessage>,
    chains: EventChains,
    filter: Filter,
    shard: number,
    checks: PositionChecks,
  ) {
    this.stream = streamName.events(shard);
    this.#tail = tail;
    this.#chains = chains;
    this.#filter = filter;
    this.#shard = shard;
    this.#checks = checks;
    this.#start = chains.position;
    checks.add(this);
  }

  get position(): number {
    return this.#tail.position;
  }

  get isLevel(): boolean {
    return this.#tail.isLevel;
  }

  get lastActivity(): number {
    return this.#tail.lastActivity;
  }

  get isDone(): boolean {
    if (this.#tail.isClosed) return true;
    return this.#filter.kind === "run" && this.#chains.hasEnded(this.#filter.run);
  }

  close(): void {
    this.#tail.close();
    this.#checks.remove(this);
  }

  *subjects(): IterableIterator<string> {
    const filter = this.#filter;
    if (filter.kind === "run") {
      yield eventSubject.e(filter, this.#shard);
      return;
    }
    for (const run of this.#chains.openRuns()) {
      yield eventSubject.e({ tenant: filter.tenant, session: filter.session, run }, this.#shard);
    }
  }

  *filters(): IterableIterator<string> {
    const filter = this.#filter;
    // A lost `q` of a run that nothing else was seen of: in a run's tail, and in a session's.
    if (filter.kind === "run") {
      if (!this.#chains.isOpen(filter.run)) yield eventSubject.anyQ(filter, this.#shard);
      return;
    }
    yield eventSubject.anyQOfSession(filter, this.#shard);
    yield eventSubject.anyOfSession(filter, this.#shard);
  }

  found(_of: string, last: RawMessage | undefined, by: "replica" | "leader"): void {
    if (this.isDone) return;
    const address = last && parseEventSubject(last.subject);
    if (!last || !address) return;
    const reached = this.#chains.reached(address.run) ?? this.#start;
    if (last.streamSeq > reached) {
      this.#checks.repairs += 1;
      if (last.streamSeq > this.position) this.#tail.observe(last.streamSeq);
      else this.#tail.repair({ run: address.run, after: reached, upTo: last.streamSeq });
      return;
    }
    // The leader's log of the run ends before what was delivered (a `q` always does):
    // the stream was made anew, or lost what it had acknowledged.
    if (
      by === "leader" &&
      address.lane === "e" &&
      last.streamSeq < reached &&
      reached > this.#start
    ) {
      this.#tail.fail(
        new LogCorrupt(`${last.subject} ends at ${last.streamSeq}, ${reached} was delivered`),
      );
    }
  }
}
