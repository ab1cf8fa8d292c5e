import type { Broker } from "./broker.ts";
import { SubjectChain, type SubjectMessage } from "./continuity.ts";
import type { RawMessage } from "./direct-read.ts";
import { type HeaderFields, HeaderText } from "./header-text.ts";
import { H, lastSequenceOf, sequenceOf } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead, leaderReadPatiently } from "./leader-read.ts";
import type { Checkable, PositionChecks } from "./position-checks.ts";
import { commandSubject, liveCommandSubject, runOfSubject, streamName } from "./subjects.ts";
import { type Page, Tail, type TailSource } from "./tail.ts";

export interface StoredCommand extends SubjectMessage {
  readonly user: string;
  readonly hash: string;
  /** When an edge took it, ms since the epoch; 0 where that was not told. */
  readonly at: number;
  /** The command as it was stored: an edge checked it, a worker checks it again. */
  readonly command: unknown;
  readonly body: Uint8Array;
}

export interface CommandSink {
  command(command: StoredCommand): void;
  fault(error: Error): void;
}

/** `drainToLeader` stands before a terminal event: it waits out a leader election. */
const DRAIN_MS = 30_000;

/** A run's commands in stream order, without hole or repeat, for the worker that owns it. */
export class CommandTail implements Checkable {
  readonly stream: string;
  readonly #broker: Broker;
  readonly #checks: PositionChecks;
  readonly #subject: string;
  readonly #tail: Tail<StoredCommand>;
  /** Callers of drainToLeader; each goes when its sequence is reached or the tail closes. */
  readonly #waiting: Set<() => void> = new Set();

  constructor(broker: Broker, ref: RunRef, after: number, sink: CommandSink) {
    const shard = broker.shardOf(ref.session);
    this.#broker = broker;
    this.#checks = broker.checks;
    this.stream = streamName.commands(shard);
    this.#subject = commandSubject(ref, shard);
    this.#tail = new Tail(commandSource(broker, ref), new SubjectChain<StoredCommand>(after), {
      message: (command) => {
        sink.command(command);
        this.#wake();
      },
      level: () => this.#wake(),
      caughtUp: () => this.#wake(),
      fault: (error) => {
        this.#wake();
        sink.fault(error);
      },
    });
    this.#checks.add(this);
  }

  get position(): number {
    return this.#tail.position;
  }

  get lastActivity(): number {
    return this.#tail.lastActivity;
  }

  get isDone(): boolean {
    return this.#tail.isClosed;
  }

  /**
   * Resolves when every command that the stream's leader holds now has been handed to the sink.
   * Stands before whatever would override an accepted command: an expiry, a terminal event.
   * Rejects with BrokerUnavailable when the leader does not answer within 30 s.
   */
  async drainToLeader(): Promise<void> {
    const query = { last_by_subj: this.#subject };
    const last = await leaderReadPatiently(this.#broker.nc, this.stream, query, DRAIN_MS);
    if (!last) return;
    this.#tail.observe(last.streamSeq);
    while (!this.#tail.isClosed && this.position < last.streamSeq) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
      // Level and still below it: it has expired between the look and the read.
      if (this.#tail.isLevel) return;
    }
  }

  close(): void {
    this.#tail.close();
    this.#checks.remove(this);
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  *subjects(): IterableIterator<string> {
    yield this.#subject;
  }

  *filters(): IterableIterator<string> {
    // One exact subject a run: nothing to ask by wildcard.
  }

  found(_of: string, last: RawMessage | undefined): void {
    if (!last || last.streamSeq <= this.position) return;
    this.#checks.repairs += 1;
    this.#tail.observe(last.streamSeq);
  }
}

export function storedCommand(
  subject: string,
  streamSeq: number,
  headers: HeaderFields,
  body: Uint8Array,
): StoredCommand {
  const at = Number(headers.get(H.at));
  return {
    run: runOfSubject(subject),
    streamSeq,
    lastOnSubject: lastSequenceOf(headers),
    user: decodeURIComponent(headers.get(H.user)),
    hash: headers.get(H.hash),
    at: Number.isSafeInteger(at) && at > 0 ? at : 0,
    command: parsed(body),
    body,
  };
}

/** What is no JSON was not written by an edge of ours; the worker answers it as malformed. */
function parsed(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString("utf8"));
  } catch {
    return undefined;
  }
}

/**
 * A page of a run's commands after `after`. With `upTo`, `end` is reported only when the leader confirms
 * that nothing is left at or below it.
 */
export async function readCommands(
  broker: Broker,
  ref: RunRef,
  after: number,
  upTo?: number,
): Promise<Page<StoredCommand>> {
  const shard = broker.shardOf(ref.session);
  const stream = streamName.commands(shard);
  const subject = commandSubject(ref, shard);
  const answer = await broker.reader.read(stream, {
    seq: after + 1,
    next_by_subj: subject,
    batch: 256,
    max_bytes: 256 * 1024,
  });
  // In a batch `Nats-Last-Sequence` names the batch's previous message: nothing to check against.
  const messages = answer.messages.map((m) => ({
    ...storedCommand(m.subject, m.streamSeq, m.headers, m.body),
    lastOnSubject: 0,
  }));
  if (answer.pending > 0) return { messages, end: false };
  const reached = messages.at(-1)?.streamSeq ?? after;
  if (upTo === undefined || reached >= upTo) return { messages, end: true };
  const next = await leaderRead(broker.nc, stream, { seq: reached + 1, next_by_subj: subject });
  if (!next || next.streamSeq > upTo) return { messages, end: true };
  messages.push({
    ...storedCommand(next.subject, next.streamSeq, next.headers, next.body),
    lastOnSubject: 0,
  });
  return { messages, end: false };
}

function commandSource(broker: Broker, ref: RunRef): TailSource<StoredCommand> {
  const liveSubject = liveCommandSubject(ref, broker.shardOf(ref.session));
  const read = (after: number, upTo?: number): Promise<Page<StoredCommand>> =>
    readCommands(broker, ref, after, upTo);
  return {
    subscribe: (onLive, onBroken) => {
      const live = broker.nc.subscribe(liveSubject, {
        callback: (error, m) => {
          if (error) {
            onBroken(error);
            return;
          }
          let command: StoredCommand;
          try {
            const headers = HeaderText.of(m);
            command = storedCommand(m.subject, sequenceOf(headers), headers, m.data);
          } catch (cause) {
            onBroken(cause instanceof Error ? cause : new Error(String(cause)));
            return;
          }
          onLive(command);
        },
      });
      return { close: () => live.unsubscribe() };
    },
    read,
    readRun: (_run, after, upTo) => read(after, upTo),
  };
}
