import type { Broker } from "./broker.ts";
import { EventChains } from "./continuity.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { H, type LogMessage, logMessage } from "./headers.ts";
import type { RunRef, SessionRef } from "./ids.ts";
import { leaderRead } from "./leader-read.ts";
import { ephemeralMessage, liveMessage } from "./live-message.ts";
import type { EphemeralMessage } from "./ephemeral.ts";
import { type StartOutcome, startRun, type StartRequest } from "./start.ts";
import {
  ephemeralSubject,
  eventSubject,
  liveSubject,
  parseEventSubject,
  streamName,
} from "./subjects.ts";
import { type Page, Tail, type TailSink, type TailSource } from "./tail.ts";
import { EventTail } from "./event-tail.ts";

export type LogFilter =
  | ({ readonly kind: "run" } & RunRef)
  | ({ readonly kind: "session" } & SessionRef);

export interface ReadLimit {
  /** Messages in a page (default 256). */
  readonly messages?: number;
  /** A page is full at so many bytes, headers included (default 256 KiB); it may go over by its last message. */
  readonly bytes?: number;
  /** Report `end` only when the leader confirms that nothing is left at or below this stream sequence. */
  readonly upTo?: number;
}

export interface Head {
  /** Last sequence of the shard's stream. */
  readonly streamSeq: number;
  /** The stream's own epoch: tells a stream that was deleted and made anew. */
  readonly epoch: string;
}

const PAGE_MESSAGES = 256;
const PAGE_BYTES = 256 * 1024;
/** Runs whose `q` position is remembered, so that a page costs one request, not two. */
const QUEUED_KEPT = 20_000;

/** The event logs of all runs: positional reads, the tail, the ephemeral lane, and the start of a run. */
export class EventLog {
  readonly #broker: Broker;
  readonly #reader: DirectReader;
  readonly #queuedAt: Map<string, number> = new Map();

  constructor(broker: Broker) {
    this.#broker = broker;
    this.#reader = broker.reader;
  }

  /** Stored messages after `after` (exclusive), in stream order. Rejects with BrokerUnavailable. */
  async read(filter: LogFilter, after: number, limit: ReadLimit = {}): Promise<Page<LogMessage>> {
    const shard = this.#broker.shardOf(filter.session);
    const messages: LogMessage[] = [];
    let from = after;
    let subject = eventSubject.anyOfSession(filter, shard);
    if (filter.kind === "run") {
      subject = eventSubject.e(filter, shard);
      const queued = await this.#queued(filter, after);
      if (queued) {
        messages.push(queued);
        from = queued.streamSeq;
      }
    }
    const stream = streamName.events(shard);
    const answer = await this.#reader.read(stream, {
      seq: from + 1,
      next_by_subj: subject,
      batch: limit.messages ?? PAGE_MESSAGES,
      max_bytes: limit.bytes ?? PAGE_BYTES,
    });
    for (const raw of answer.messages) messages.push(fromStored(raw));
    if (answer.pending > 0) return { messages, end: false };
    const reached = messages.at(-1)?.streamSeq ?? after;
    if (limit.upTo === undefined || reached >= limit.upTo) return { messages, end: true };
    // The replica that answered may lag behind the leader.
    const next = await leaderRead(this.#broker.nc, stream, {
      seq: Math.max(reached, from) + 1,
      next_by_subj: subject,
    });
    if (!next || next.streamSeq > limit.upTo) return { messages, end: true };
    messages.push(fromStored(next));
    return { messages, end: false };
  }

  /** The run's `q`, if it lies after `after`. A replica's "not there" is asked of the leader. */
  async #queued(ref: RunRef, after: number): Promise<LogMessage | undefined> {
    const key = `${ref.tenant}.${ref.session}.${ref.run}`;
    const at = this.#queuedAt.get(key);
    if (at !== undefined && at <= after) return undefined;
    const shard = this.#broker.shardOf(ref.session);
    const stream = streamName.events(shard);
    const query = { last_by_subj: eventSubject.anyQ(ref, shard) };
    const { messages } = await this.#reader.read(stream, query);
    const raw = messages[0] ?? (await leaderRead(this.#broker.nc, stream, query));
    if (!raw) return undefined;
    this.#queuedAt.set(key, raw.streamSeq);
    if (this.#queuedAt.size > QUEUED_KEPT) {
      for (const oldest of this.#queuedAt.keys()) {
        this.#queuedAt.delete(oldest);
        break;
      }
    }
    return raw.streamSeq > after ? fromStored(raw) : undefined;
  }

  /** The last stored message of the filter. From a replica, "none" and "older" prove nothing. */
  async last(filter: LogFilter, from: "leader" | "replica"): Promise<LogMessage | undefined> {
    const shard = this.#broker.shardOf(filter.session);
    const stream = streamName.events(shard);
    const subjects =
      filter.kind === "session"
        ? [eventSubject.anyOfSession(filter, shard)]
        : [eventSubject.e(filter, shard), eventSubject.anyQ(filter, shard)];
    for (const subject of subjects) {
      const raw =
        from === "leader"
          ? await leaderRead(this.#broker.nc, stream, { last_by_subj: subject })
          : (await this.#reader.read(stream, { last_by_subj: subject })).messages[0];
      if (raw) return fromStored(raw);
    }
    return undefined;
  }

  /** The run's first message, asked of the leader where a replica does not have it. */
  async queued(ref: RunRef): Promise<LogMessage | undefined> {
    return this.#queued(ref, 0);
  }

  /** The message stored at exactly `streamSeq`, if it is of this run or session. */
  async at(ref: RunRef | SessionRef, streamSeq: number): Promise<LogMessage | undefined> {
    if (streamSeq < 1) return undefined;
    const shard = this.#broker.shardOf(ref.session);
    const stream = streamName.events(shard);
    const query = { seq: streamSeq };
    const { messages } = await this.#reader.read(stream, query);
    const raw = messages[0] ?? (await leaderRead(this.#broker.nc, stream, query));
    const address = raw && parseEventSubject(raw.subject);
    if (!raw || !address) return undefined;
    if (address.tenant !== ref.tenant || address.session !== ref.session) return undefined;
    if ("run" in ref && address.run !== ref.run) return undefined;
    return fromStored(raw);
  }

  /** Where the shard's stream ends now, as its leader says. Rejects with BrokerUnavailable. */
  async head(ref: SessionRef): Promise<Head> {
    this.#broker.assertUp();
    const stream = streamName.events(this.#broker.shardOf(ref.session));
    try {
      const { state, created } = await this.#broker.jsm.streams.info(stream);
      return { streamSeq: state.last_seq, epoch: String(created) };
    } catch (cause) {
      throw new BrokerUnavailable(`the leader of ${stream} does not say where it ends`, { cause });
    }
  }

  /** The runs of the session of which anything is stored now, as the stream's leader says; in no order. Rejects with BrokerUnavailable. */
  async runs(ref: SessionRef): Promise<readonly string[]> {
    this.#broker.assertUp();
    const shard = this.#broker.shardOf(ref.session);
    const query = { subjects_filter: eventSubject.anyOfSession(ref, shard) };
    try {
      const { state } = await this.#broker.jsm.streams.info(streamName.events(shard), query);
      const addresses = Object.keys(state.subjects ?? {}).map(parseEventSubject);
      return [...new Set(addresses.flatMap((address) => address?.run ?? []))];
    } catch (cause) {
      throw new BrokerUnavailable("the leader does not say which runs there are", { cause });
    }
  }

  tail(filter: LogFilter, after: number, sink: TailSink<LogMessage>): EventTail {
    const shard = this.#broker.shardOf(filter.session);
    const chains = new EventChains(after);
    const tail = new Tail(this.#source(filter, shard), chains, sink);
    return new EventTail(tail, chains, filter, shard, this.#broker.checks);
  }

  #source(filter: LogFilter, shard: number): TailSource<LogMessage> {
    const subject =
      filter.kind === "run"
        ? liveSubject.ofRun(filter, shard)
        : liveSubject.ofSession(filter, shard);
    const run = filter.kind === "run" ? filter.run : undefined;
    return {
      subscribe: (onLive, onBroken) => {
        const live = this.#broker.nc.subscribe(subject, {
          callback: (error, m) => {
            if (error) {
              onBroken(error);
              return;
            }
            let message: LogMessage;
            try {
              message = liveMessage(m, run);
            } catch (cause) {
              onBroken(cause instanceof Error ? cause : new Error(String(cause)));
              return;
            }
            onLive(message);
          },
        });
        return { close: () => live.unsubscribe() };
      },
      read: (after, upTo) => this.read(filter, after, upTo === undefined ? {} : { upTo }),
      readRun: (run, after, upTo) =>
        this.read({ kind: "run", tenant: filter.tenant, session: filter.session, run }, after, {
          upTo,
        }),
    };
  }

  /** Deltas and other ephemeral frames of the filter: at most once, never stored. */
  ephemeral(filter: LogFilter, onMessage: (message: EphemeralMessage) => void): { close(): void } {
    const shard = this.#broker.shardOf(filter.session);
    const subject =
      filter.kind === "run"
        ? ephemeralSubject.ofRun(filter, shard)
        : ephemeralSubject.ofSession(filter, shard);
    const run = filter.kind === "run" ? filter.run : undefined;
    const subscription = this.#broker.nc.subscribe(subject, {
      callback: (error, m) => {
        const message = error === null ? ephemeralMessage(m, run) : undefined;
        if (message) onMessage(message);
      },
    });
    return { close: () => subscription.unsubscribe() };
  }

  /** Stores `run.queued`, which is also the job: one write starts a run. */
  start(request: StartRequest): Promise<StartOutcome> {
    return startRun(this.#broker, request);
  }
}

function fromStored(raw: RawMessage): LogMessage {
  if (raw.headers.get(H.seq) === "") {
    throw new LogCorrupt(`${raw.subject} at ${raw.streamSeq} was written by no run writer`);
  }
  return logMessage(raw.subject, raw.streamSeq, raw.headers, raw.body);
}
