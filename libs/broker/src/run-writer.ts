import { randomBytes } from "node:crypto";
import {
  type DurableEvent,
  isBarrier,
  isTerminal,
  MAX_EVENT_BYTES,
  type NewEvent,
} from "@throughline/protocol";
import { appendBatch, type AppendTarget, type RunPosition } from "./append.ts";
import { type Batch, type Line, takeBatch } from "./batch.ts";
import type { Broker } from "./broker.ts";
import { EventTooLarge, FencedError, QueueFull, WriterFailed } from "./errors.ts";
import type { NewEphemeral } from "./ephemeral.ts";
import { H } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { toHeaders } from "./publish.ts";
import { ephemeralSubject } from "./subjects.ts";
import { type LaneTimes, TextLane, type TextStream } from "./text-lane.ts";

export interface RunWriterOptions {
  readonly ref: RunRef;
  readonly epoch: string;
  readonly attempt: number;
  /** Id of this worker process, for the owner check. */
  readonly worker: string;
  readonly position: RunPosition;
  /** How long an append's outcome may stay unknown before the writer gives up, in ms (default 10 min). */
  readonly patienceMs?: number;
  readonly lane?: LaneTimes;
  /**
   * Told of each message as soon as it is stored, in order, before the appends of its events resolve:
   * what is reduced here is the log, and need not be read back. The events are the appended ones, not
   * copies. What it throws breaks the writer.
   */
  readonly onStored?: (events: readonly DurableEvent[], at: MessageAt) => void;
}

/** Where a message of events was stored. */
export interface MessageAt {
  readonly streamSeq: number;
  /** COMMANDS sequence applied through. */
  readonly cmd: number;
}

export interface AppendOptions {
  /** COMMANDS sequence that this event applies. */
  readonly cmd?: number;
}

export interface StoredAt {
  readonly seq: number;
  readonly streamSeq: number;
}

type State =
  | { readonly kind: "open" }
  /** The terminal event is queued or stored: nothing may follow it (INV4). */
  | { readonly kind: "ended" }
  | { readonly kind: "closed" }
  | { readonly kind: "broken"; readonly error: FencedError | WriterFailed };

const PATIENCE_MS = 10 * 60_000;
/** Above it `ready()` waits; a producer that awaits its writes never gets further. */
const HIGH_WATER_BYTES = 1024 * 1024;
/** Above it appends are refused: a producer that awaits nothing must not take the process down. */
const QUEUE_BYTES = 8 * 1024 * 1024;

/**
 * The one writer of a run's events (ARCHITECTURE §3). One publish is in flight; what is emitted
 * meanwhile is packed into the next. Every publish carries the expected last sequence of its
 * subject, so a writer that lost its run is refused by the server: that is the fence.
 */
export class RunWriter {
  /** Random id of this attempt: tells our own stored message from another attempt's. */
  readonly writer: string = randomBytes(9).toString("base64url");
  readonly #broker: Broker;
  readonly #options: RunWriterOptions;
  readonly #log: AppendTarget;
  readonly #ephemeral: string;
  readonly #lane: TextLane;
  readonly #broken: AbortController = new AbortController();
  readonly #queue: Line[] = [];
  #queuedBytes = 0;
  #state: State = { kind: "open" };
  #seq: number;
  #position: RunPosition;
  #inFlight = false;
  /** Callers of flush and ready; looked at after every append, rejected when the writer breaks. */
  readonly #waiting: Set<{
    until: () => boolean;
    resolve: () => void;
    reject: (e: Error) => void;
  }> = new Set();

  constructor(broker: Broker, options: RunWriterOptions) {
    const shard = broker.shardOf(options.ref.session);
    this.#broker = broker;
    this.#options = options;
    this.#log = {
      ref: options.ref,
      shard,
      epoch: options.epoch,
      attempt: options.attempt,
      worker: options.worker,
      writer: this.writer,
      patienceMs: options.patienceMs ?? PATIENCE_MS,
    };
    this.#ephemeral = ephemeralSubject.ofRun(options.ref, shard);
    this.#position = options.position;
    this.#seq = options.position.seq;
    this.#lane = new TextLane(
      {
        checkpoint: (event) => this.#enqueue([event], {}, true),
        deltas: (events) => this.#sendEphemeral(events),
        ready: () => this.ready(),
      },
      options.lane,
    );
  }

  /** Last assigned seq. */
  get seq(): number {
    return this.#seq;
  }

  /** What is stored for sure. */
  get stored(): RunPosition {
    return this.#position;
  }

  /** Aborted, with FencedError or WriterFailed as reason, when nothing can be appended any more. */
  get signal(): AbortSignal {
    return this.#broken.signal;
  }

  /**
   * Queues a durable event; its seq is assigned now, in call order. Resolves when it is stored.
   * Rejects with FencedError or WriterFailed (the writer is broken), EventTooLarge or QueueFull
   * (this event was not taken and no seq was used).
   */
  append(event: NewEvent, options: AppendOptions = {}): Promise<StoredAt> {
    return this.#enqueue([event], options, false);
  }

  /**
   * Queues several events with nothing between them, all or none. One message holds them, so they are
   * stored all or none too, unless no message could (256 lines, 512 KiB). `cmd` counts with the last.
   * Resolves with the last one's place; rejects like `append`.
   */
  appendAll(events: readonly NewEvent[], options: AppendOptions = {}): Promise<StoredAt> {
    return this.#enqueue(events, options, false);
  }

  /** A message's text on two lanes: deltas at once and not stored, checkpoints stored. */
  text(messageId: string, stepId?: string): TextStream {
    return this.#lane.open(messageId, stepId);
  }

  /** Sends an event without seq: not stored, at most once. */
  ephemeral(event: NewEphemeral): void {
    if (this.#state.kind === "open") this.#sendEphemeral([event]);
  }

  /** Resolves at once while there is room, else when the queue has drained below its high-water mark. */
  ready(): Promise<void> {
    return this.#until(() => this.#queuedBytes < HIGH_WATER_BYTES);
  }

  /** Resolves when everything appended so far, open text included, is stored. Rejects when the writer breaks. */
  flush(): Promise<void> {
    if (this.#state.kind === "open") this.#lane.checkpoint();
    const target = this.#seq;
    return this.#until(() => this.#position.seq >= target);
  }

  /**
   * Ends every open text and resolves when all that was appended or written so far is stored. What is
   * still written to those texts is swallowed: their producer was stopped and may not know it yet.
   */
  closeText(): Promise<void> {
    if (this.#state.kind === "open") this.#lane.close();
    return this.flush();
  }

  /** Flushes, then takes nothing more. */
  async close(): Promise<void> {
    try {
      await this.flush();
    } finally {
      this.discard();
    }
  }

  /** Takes nothing more from now on; what is queued and not yet sent is dropped. */
  discard(): void {
    this.#lane.stop();
    if (this.#state.kind === "open" || this.#state.kind === "ended")
      this.#state = { kind: "closed" };
    this.#dropQueue(new WriterFailed("the run writer was closed"));
  }

  #enqueue(
    events: readonly NewEvent[],
    options: AppendOptions,
    settles: boolean,
  ): Promise<StoredAt> {
    const refusal = this.#refusal();
    if (refusal) return Promise.reject(refusal);
    if (events.length === 0) return Promise.reject(new RangeError("there is nothing to append"));
    const encoded = events.map((event, i) => this.#encode(event, this.#seq + 1 + i));
    const large = encoded.find(({ bytes }) => bytes.byteLength > MAX_EVENT_BYTES);
    if (large) {
      const { event, bytes } = large;
      return Promise.reject(
        new EventTooLarge(
          `${event.type} is ${bytes.byteLength} bytes, ${MAX_EVENT_BYTES} at most: write it in smaller pieces, or give it back as the output of a step`,
        ),
      );
    }
    const size = encoded.reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
    if (this.#queuedBytes + size > QUEUE_BYTES) {
      return Promise.reject(new QueueFull(`more than ${QUEUE_BYTES} bytes wait for the log`));
    }
    const end = encoded.findIndex(({ event }) => isTerminal(event.type));
    if (end >= 0 && end < encoded.length - 1) {
      return Promise.reject(new RangeError("nothing may follow the run's terminal event"));
    }
    if (end >= 0) {
      this.#lane.stop();
      this.#state = { kind: "ended" };
    }
    this.#seq += encoded.length;
    this.#queuedBytes += size;
    const group =
      encoded.length === 1
        ? undefined
        : { lines: encoded.length, bytes: size + encoded.length - 1 };
    return new Promise((stored, failed) => {
      for (const [i, { event, bytes }] of encoded.entries()) {
        const last = i === encoded.length - 1;
        this.#queue.push({
          event,
          seq: event.seq,
          bytes,
          group,
          cmd: last ? (options.cmd ?? 0) : 0,
          barrier: isBarrier(event.type),
          settles,
          end: isTerminal(event.type),
          // A group is stored when its last line is; it fails when any of it does.
          stored: last ? stored : () => undefined,
          failed,
        });
      }
      if (!this.#inFlight) void this.#drain();
    });
  }

  #encode(
    event: NewEvent,
    seq: number,
  ): { readonly event: DurableEvent; readonly bytes: Uint8Array } {
    const { ref } = this.#options;
    const durable: DurableEvent = {
      ...event,
      session_id: ref.session,
      run_id: ref.run,
      seq,
      event_id: `${ref.run}.${seq}`,
      ts: Date.now(),
    };
    return { event: durable, bytes: Buffer.from(JSON.stringify(durable)) };
  }

  #refusal(): Error | undefined {
    switch (this.#state.kind) {
      case "open":
        return undefined;
      case "ended":
        return new WriterFailed("the run's terminal event was appended: nothing may follow it");
      case "closed":
        return new WriterFailed("the run writer was closed");
      case "broken":
        return this.#state.error;
    }
  }

  async #drain(): Promise<void> {
    this.#inFlight = true;
    // What the same turn emits goes into the first message.
    await Promise.resolve();
    while (this.#queue.length > 0 && this.#state.kind !== "broken") {
      const batch = takeBatch(this.#queue, this.#position.cmd);
      const outcome = await appendBatch(this.#broker.nc, this.#log, this.#position, batch);
      this.#queuedBytes -= batch.body.byteLength - (batch.lines.length - 1);
      if (typeof outcome !== "number") {
        for (const line of batch.lines) line.failed(outcome);
        this.#break(outcome);
        break;
      }
      this.#position = {
        seq: batch.lastSeq,
        streamSeq: outcome,
        eSeq: outcome,
        cmd: batch.cmd,
      };
      const mishap = this.#tell(batch);
      for (const line of batch.lines) line.stored({ seq: line.seq, streamSeq: outcome });
      if (mishap) this.#break(mishap);
      else this.#wake();
    }
    this.#inFlight = false;
  }

  #tell(batch: Batch): WriterFailed | undefined {
    try {
      const events = batch.lines.map((line) => line.event);
      this.#options.onStored?.(events, { streamSeq: this.#position.streamSeq, cmd: batch.cmd });
    } catch (cause) {
      const run = this.#options.ref.run;
      return new WriterFailed(`what was stored of ${run} could not be taken in`, { cause });
    }
    return undefined;
  }

  #sendEphemeral(events: readonly NewEphemeral[]): void {
    if (this.#state.kind !== "open" || this.#broker.connection === "down") return;
    const { ref, attempt, epoch } = this.#options;
    const ts = Date.now();
    const lines = events.map((event) =>
      JSON.stringify({
        type: event.type,
        session_id: ref.session,
        run_id: ref.run,
        ts,
        attempt,
        step_id: event.step_id,
        payload: event.payload,
      }),
    );
    this.#broker.nc.publish(this.#ephemeral, lines.join("\n"), {
      headers: toHeaders({
        [H.attempt]: attempt,
        [H.writer]: this.writer,
        [H.epoch]: epoch,
        [H.after]: this.#seq,
      }),
    });
  }

  #break(error: FencedError | WriterFailed): void {
    this.#lane.stop();
    this.#state = { kind: "broken", error };
    this.#dropQueue(error);
    this.#broken.abort(error);
  }

  #dropQueue(error: Error): void {
    for (const line of this.#queue.splice(0)) {
      this.#queuedBytes -= line.bytes.byteLength;
      line.failed(error);
    }
    for (const waiter of this.#waiting) {
      if (waiter.until()) waiter.resolve();
      else waiter.reject(error);
    }
    this.#waiting.clear();
  }

  #until(until: () => boolean): Promise<void> {
    if (until()) return Promise.resolve();
    const { kind } = this.#state;
    if (kind === "broken" || kind === "closed") {
      return Promise.reject(this.#refusal() ?? new WriterFailed("the run writer was closed"));
    }
    return new Promise((resolve, reject) => this.#waiting.add({ until, resolve, reject }));
  }

  #wake(): void {
    for (const waiter of this.#waiting) {
      if (!waiter.until()) continue;
      this.#waiting.delete(waiter);
      waiter.resolve();
    }
  }
}

export function openRunWriter(broker: Broker, options: RunWriterOptions): RunWriter {
  return new RunWriter(broker, options);
}
