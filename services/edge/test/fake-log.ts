import type {
  EphemeralMessage,
  LogFilter,
  LogMessage,
  Page,
  ReadLimit,
  TailSink,
} from "@throughline/broker";
import type { EventSource } from "../src/fanout/log.ts";

interface Following {
  readonly filter: LogFilter;
  readonly sink: TailSink<LogMessage>;
  readonly queue: LogMessage[];
  /** Runs of which a message was lost on the way: repaired later, as a tail does. */
  readonly lost: Map<string, LogMessage[]>;
  level: boolean;
}

/** One shard's event log, whose tails deliver when told to, with losses that are repaired late. */
export class FakeLog implements EventSource {
  readonly messages: LogMessage[] = [];
  readonly #tails: Set<Following> = new Set();
  readonly #ephemeral: Set<{ filter: LogFilter; take: (m: EphemeralMessage) => void }> = new Set();
  readonly #runs: Map<string, { last: number; streamSeq: number; ended: boolean }> = new Map();
  /** How many messages a read from a replica does not see yet. */
  replicaLag = 0;
  reads = 0;
  lasts = 0;
  /** Reads reject while set. */
  failure: Error | undefined;
  #streamSeq = 0;
  epoch = "e1";

  get head_(): number {
    return this.#streamSeq;
  }

  runs(): string[] {
    return [...this.#runs.keys()];
  }

  hasEnded(run: string): boolean {
    return this.#runs.get(run)?.ended ?? false;
  }

  /** Messages of other sessions take numbers of the stream too. */
  skip(numbers: number): void {
    this.#streamSeq += numbers;
  }

  append(
    run: string,
    events: number,
    more: {
      end?: boolean;
      barrier?: boolean;
      settled?: boolean;
      attempt?: number;
      pad?: number;
    } = {},
  ): LogMessage {
    const state = this.#runs.get(run) ?? { last: 0, streamSeq: 0, ended: false };
    this.#streamSeq += 1;
    const firstSeq = state.last + 1;
    const lastSeq = state.last + events;
    const lines: string[] = [];
    for (let seq = firstSeq; seq <= lastSeq; seq += 1) lines.push(line(run, seq, more.pad ?? 0));
    const message: LogMessage = {
      run,
      streamSeq: this.#streamSeq,
      prev: state.streamSeq,
      firstSeq,
      lastSeq,
      attempt: more.attempt ?? 1,
      writer: "w",
      worker: "k",
      epoch: this.epoch,
      cmd: 0,
      barrier: more.barrier || more.end ? lastSeq : 0,
      settled: more.settled ? lastSeq : 0,
      end: more.end ?? false,
      lane: firstSeq === 1 ? "q" : "e",
      body: Buffer.from(lines.join("\n")),
    };
    this.#runs.set(run, { last: lastSeq, streamSeq: this.#streamSeq, ended: message.end });
    this.messages.push(message);
    for (const tail of this.#tails) if (matches(tail.filter, message)) tail.queue.push(message);
    return message;
  }

  /** Messages up to here have expired. */
  expire(streamSeq: number): void {
    while ((this.messages[0]?.streamSeq ?? Infinity) <= streamSeq) this.messages.shift();
  }

  delta(run: string, after: number, text: string, attempt = 1): void {
    const event = { type: "model.delta", run_id: run, attempt, payload: { text } };
    const m = {
      run,
      attempt,
      writer: "w",
      epoch: this.epoch,
      after,
      body: Buffer.from(JSON.stringify(event)),
    };
    for (const { filter, take } of this.#ephemeral) if (matches(filter, m)) take(m);
  }

  async read(filter: LogFilter, after: number, limit: ReadLimit): Promise<Page<LogMessage>> {
    this.reads += 1;
    await Promise.resolve();
    if (this.failure) throw this.failure;
    const upTo = limit.upTo ?? this.#streamSeq - this.replicaLag;
    const all = this.messages.filter((m) => m.streamSeq > after && matches(filter, m));
    const seen = all.filter(
      (m) => m.streamSeq <= Math.max(upTo, this.#streamSeq - this.replicaLag),
    );
    const page: LogMessage[] = [];
    let bytes = 0;
    for (const m of seen) {
      if (page.length >= (limit.messages ?? 256)) break;
      if (page.length > 0 && bytes + m.body.byteLength > (limit.bytes ?? 262_144)) break;
      page.push(m);
      bytes += m.body.byteLength;
    }
    const reached = page.at(-1)?.streamSeq ?? after;
    return { messages: page, end: page.length === seen.length || reached >= upTo };
  }

  async last(filter: LogFilter, from: "leader" | "replica"): Promise<LogMessage | undefined> {
    this.lasts += 1;
    await Promise.resolve();
    if (this.failure) throw this.failure;
    const seen = this.#streamSeq - (from === "replica" ? this.replicaLag : 0);
    return this.messages.findLast((m) => m.streamSeq <= seen && matches(filter, m));
  }

  async head(): Promise<{ streamSeq: number; epoch: string }> {
    await Promise.resolve();
    return { streamSeq: this.#streamSeq, epoch: `stream-${this.epoch}` };
  }

  tail(filter: LogFilter, after: number, sink: TailSink<LogMessage>): { close(): void } {
    const queue = this.messages.filter((m) => m.streamSeq > after && matches(filter, m));
    const tail: Following = { filter, sink, queue, lost: new Map(), level: false };
    this.#tails.add(tail);
    return { close: () => void this.#tails.delete(tail) };
  }

  ephemeral(filter: LogFilter, take: (m: EphemeralMessage) => void): { close(): void } {
    const lane = { filter, take };
    this.#ephemeral.add(lane);
    return { close: () => void this.#ephemeral.delete(lane) };
  }

  get tails(): number {
    return this.#tails.size;
  }

  /**
   * Each tail delivers up to `atMost` messages. `loses` may say that a session's tail misses a message: it is
   * delivered before the next one of its run, or by `repair`, and marked late.
   */
  pump(atMost = Infinity, loses: () => boolean = () => false): void {
    for (const tail of this.#tails) {
      for (let left = atMost; left > 0 && tail.queue.length > 0; left -= 1) {
        const message = tail.queue.shift();
        if (message === undefined) break;
        if (tail.filter.kind === "session" && tail.queue.length > 0 && loses()) {
          const lost = tail.lost.get(message.run) ?? [];
          tail.lost.set(message.run, [...lost, message]);
          continue;
        }
        this.#repair(tail, message.run);
        tail.sink.message(message, false);
      }
      this.#sayLevel(tail);
    }
  }

  repair(): void {
    for (const tail of this.#tails)
      for (const run of [...tail.lost.keys()]) this.#repair(tail, run);
  }

  fault(error: Error): void {
    for (const tail of [...this.#tails]) {
      this.#tails.delete(tail);
      tail.sink.fault(error);
    }
  }

  #repair(tail: Following, run: string): void {
    const lost = tail.lost.get(run) ?? [];
    tail.lost.delete(run);
    for (const message of lost) tail.sink.message(message, true);
  }

  #sayLevel(tail: Following): void {
    if (tail.level || tail.queue.length > 0) return;
    tail.level = true;
    tail.sink.level();
  }
}

/** Of a type that this version does not know: it counts, and says nothing. */
function line(run: string, seq: number, pad: number): string {
  return JSON.stringify({ type: "note", run_id: run, seq, payload: { pad: "x".repeat(pad) } });
}

function matches(filter: LogFilter, m: { run: string }): boolean {
  return filter.kind === "session" || filter.run === m.run;
}
