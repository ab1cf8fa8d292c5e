import type { EphemeralMessage, LogFilter } from "@throughline/broker";
import { type Entry, splitLines } from "./frame.ts";
import type { Delta } from "./gate.ts";
import type { FanoutNode } from "./node.ts";
import type { Runs, Track } from "./runs.ts";

interface HubView {
  /** Stream sequence through which live clients have everything. */
  published(): number;
  hasLive(): boolean;
  /** Who is fed may be given a delta. */
  moved(): void;
  /** So much has gone out to them, or is kept for who comes later. */
  grew(bytes: number): void;
}

const DELTA_OVERHEAD = 200;
/** Runs of a session whose deltas came before anything else of them did, at a time. */
const UNKNOWN_RUNS = 64;
const UNKNOWN_BYTES = 64 * 1024;

interface Unknown {
  readonly messages: EphemeralMessage[];
  bytes: number;
}

/** The ephemeral lane of a hub: deltas pass each run's gate, then go out on the delta topic. */
export class DeltaLane {
  readonly #node: FanoutNode;
  readonly #filter: LogFilter;
  readonly #runs: Runs;
  readonly #topic: string;
  readonly #hub: HubView;
  readonly #unknown: Map<string, Unknown> = new Map();
  #lane: { close(): void } | undefined;
  #shown = 0;

  constructor(node: FanoutNode, filter: LogFilter, runs: Runs, topic: string, hub: HubView) {
    this.#node = node;
    this.#filter = filter;
    this.#runs = runs;
    this.#topic = topic;
    this.#hub = hub;
  }

  /** Held until it is known where their runs stand. */
  get unknownBytes(): number {
    let bytes = 0;
    for (const unknown of this.#unknown.values()) bytes += unknown.bytes;
    return bytes;
  }

  /** Lets go of them: the next checkpoint says it durably. */
  forgetUnknown(): void {
    for (const unknown of this.#unknown.values()) {
      unknown.messages.length = 0;
      unknown.bytes = 0;
    }
  }

  open(): void {
    this.#lane = this.#node.log.ephemeral(this.#filter, (message) => this.#message(message));
  }

  close(): void {
    this.#lane?.close();
    this.#lane = undefined;
    this.#unknown.clear();
  }

  /** A durable message has gone out: what was held for it may follow. */
  delivered(entry: Entry): void {
    const track = this.#runs.get(entry.run);
    if (track === undefined) return;
    for (const delta of track.gate.delivered(entry)) this.#show(delta);
    if (this.#unknown.size > 0) this.#offerUnknown(track);
  }

  #message(message: EphemeralMessage): void {
    const track = this.#runs.get(message.run);
    if (track) this.#offer(track, message);
    else if (this.#filter.kind === "session") this.#keepUnknown(message);
  }

  #offer(track: Track, message: EphemeralMessage): void {
    const delta = toDelta(message);
    const verdict = track.gate.offer(delta);
    if (verdict === "show") this.#show(delta);
    else if (verdict === "held") this.#hub.grew(delta.bytes);
  }

  #show(delta: Delta): void {
    this.#shown += 1;
    delta.order = this.#shown;
    this.#hub.moved();
    this.#hub.grew(delta.bytes);
    if (!this.#hub.hasLive()) return;
    const { turn, publisher, metrics } = this.#node;
    if (!turn.take(delta.bytes)) {
      metrics.deltasSkipped += delta.frames.length;
      return;
    }
    for (const frame of delta.frames) publisher.publish(this.#topic, frame);
    metrics.deltas += delta.frames.length;
  }

  /**
   * A session's hub begins at the end of the log, so it may not have seen anything of a run whose
   * deltas come, and such a run may be silent otherwise for long (a tool's progress). So the log
   * is asked once where the run stands.
   */
  #keepUnknown(message: EphemeralMessage): void {
    if (this.#runs.hasEnded(message.run)) return;
    let unknown = this.#unknown.get(message.run);
    if (unknown === undefined) {
      if (this.#unknown.size >= UNKNOWN_RUNS) return;
      unknown = { messages: [], bytes: 0 };
      this.#unknown.set(message.run, unknown);
      void this.#ask(message.run);
    }
    if (unknown.bytes + message.body.byteLength > UNKNOWN_BYTES) return;
    // The body is a view on a chunk of network input, as in `toDelta`.
    unknown.messages.push({ ...message, body: Buffer.from(message.body) });
    unknown.bytes += message.body.byteLength;
    this.#hub.grew(message.body.byteLength);
  }

  async #ask(run: string): Promise<void> {
    const { tenant, session } = this.#filter;
    const filter = { kind: "run", tenant, session, run } as const;
    try {
      const last = await this.#node.reads.run(() => this.#node.log.last(filter, "replica"));
      // What is not published yet comes by the tail, which then knows the run.
      const known = last !== undefined && last.streamSeq <= this.#hub.published();
      if (known && this.#runs.get(run) === undefined) this.#runs.seen(last);
      const track = this.#runs.get(run);
      if (track) this.#offerUnknown(track);
    } catch {
      // NATS does not answer. Deltas are done without: the next checkpoint says it durably.
      this.#node.metrics.deltasSkipped += this.#unknown.get(run)?.messages.length ?? 0;
    } finally {
      this.#unknown.delete(run);
    }
  }

  #offerUnknown(track: Track): void {
    const unknown = this.#unknown.get(track.run);
    if (unknown === undefined) return;
    this.#unknown.delete(track.run);
    for (const message of unknown.messages) this.#offer(track, message);
  }
}

/** The body is a view on a chunk of network input: copied, so that a small delta does not hold 64 KiB. */
function toDelta(message: EphemeralMessage): Delta {
  const body = Buffer.from(message.body);
  return {
    attempt: message.attempt,
    epoch: message.epoch,
    after: message.after,
    frames: splitLines(body),
    bytes: body.byteLength + DELTA_OVERHEAD,
    order: 0,
  };
}
