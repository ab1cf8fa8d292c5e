import type { LogFilter, LogMessage } from "@throughline/broker";
import { cursorTag, formatCursor } from "@throughline/protocol";
import { Audience } from "./audience.ts";
import { BudgetShare, type Evictable } from "./budget.ts";
import { DeltaLane } from "./delta-lane.ts";
import type { Entry } from "./frame.ts";
import type { Delta } from "./gate.ts";
import { History } from "./history.ts";
import type { HubStart } from "./hub-start.ts";
import type { FanoutNode } from "./node.ts";
import { Origin } from "./origin.ts";
import type { Page } from "./pages.ts";
import { Reaching } from "./reaching.ts";
import { Runs } from "./runs.ts";
import type { Published } from "./turn.ts";

/** `level`: all that was stored when the hub began has come. `ended`: the run's terminal event is published. */
type Phase = "catching up" | "level" | "ended" | "closed";

/**
 * The fan-out of one filter (a run, or a whole session) on this node: one tail, one delta lane,
 * a ring of the newest messages, and the attachments. Each message is framed once and published
 * once, whatever the number of clients.
 */
export class Hub implements Published, Evictable {
  readonly filter: LogFilter;
  readonly durableTopic: string;
  readonly deltaTopic: string;
  readonly #node: FanoutNode;
  readonly #runs: Runs;
  readonly #history: History;
  readonly #lane: DeltaLane;
  readonly audience: Audience;
  readonly #reaching: Reaching;
  readonly #origin: Origin;
  readonly #memory: BudgetShare;
  readonly #onFault: (error: Error) => void;
  #tail: { close(): void } | undefined;
  #published: number;
  /** Cursor of the newest event published, in its parts: the text is seldom needed. */
  #newest: Pick<Entry, "lastSeq" | "streamSeq" | "tag">;
  #unpublishedBytes = 0;
  #unlookedBytes = 0;
  #phase: Phase = "catching up";
  #publishedAt: number;
  /** Attachments and those on the way to be one. */
  #holders = 0;
  #idleSince: number;

  constructor(
    node: FanoutNode,
    filter: LogFilter,
    topic: number,
    start: HubStart,
    onFault: (error: Error) => void,
  ) {
    this.#node = node;
    this.filter = filter;
    this.durableTopic = `d${topic}`;
    this.deltaTopic = `e${topic}`;
    this.#onFault = onFault;
    this.audience = new Audience(node.turn);
    this.#runs = new Runs(node.limits.gate);
    this.#lane = new DeltaLane(node, filter, this.#runs, this.deltaTopic, {
      published: () => this.#published,
      hasLive: () => this.audience.hasLive,
      moved: () => this.audience.moved(),
      grew: (bytes) => this.#grew(bytes),
    });
    this.#reaching = new Reaching(node.after);
    this.#memory = new BudgetShare(node.budget, this);
    this.#idleSince = node.now();
    this.#publishedAt = node.now();
    if (start.kind === "empty") {
      this.#published = start.streamSeq;
      this.#newest = { lastSeq: 0, streamSeq: start.streamSeq, tag: start.tag };
      this.#origin = new Origin(node, filter, start.tag);
      this.#history = new History(node, filter, start.streamSeq, start.streamSeq);
      return;
    }
    const m = start.message;
    const tag = cursorTag(m.run, m.epoch);
    this.#published = m.streamSeq;
    this.#newest = { lastSeq: m.lastSeq, streamSeq: m.streamSeq, tag };
    // Of a run, nothing lies between the last message and the one before it.
    // Of a run, nothing lies between the last message and the one before it.
    const from = filter.kind === "run" ? m.prev : m.streamSeq - 1;
    this.#history = new History(node, filter, from, m.streamSeq);
    this.#history.add(m, { run: m.run, epoch: m.epoch, tag }, m.streamSeq, false);
    this.#runs.began(m);
    this.#origin = new Origin(node, filter, filter.kind === "run" ? tag : undefined);
    if (filter.kind === "run" && m.end) this.#phase = "ended";
  }

  /** Begins to follow the log. A run that is over needs no tail. */
  follow(): void {
    if (this.#phase !== "catching up") return;
    this.#lane.open();
    this.#tail = this.#node.log.tail(this.filter, this.#published, {
      message: (message, late) => this.#message(message, late),
      level: () => {
        if (this.#phase !== "catching up") return;
        this.#phase = "level";
        this.audience.moved();
      },
      fault: (error) => this.#onFault(error),
    });
  }

  /** Stream sequence that live clients have everything through. */
  get published(): number {
    return this.#published;
  }

  get publishedAt(): number {
    return this.#publishedAt;
  }

  /** Cursor of the newest event that live clients have. */
  get cursor(): string {
    const { lastSeq: seq, streamSeq, tag } = this.#newest;
    return formatCursor({ seq, streamSeq, tag });
  }

  /** Tag of cursors that have seen nothing: a run's own, or the session's in this stream. */
  originTag(): Promise<string> {
    return this.#origin.tag();
  }

  get isLevel(): boolean {
    return this.#phase === "level" || this.#phase === "ended";
  }

  /** The run's terminal event has been published. Never true of a session. */
  get isEnded(): boolean {
    return this.#phase === "ended";
  }

  /** Holds the hub open until `release`. */
  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders === 0) this.#idleSince = this.#node.now();
  }

  isIdle(now: number): boolean {
    return this.#holders === 0 && now - this.#idleSince >= this.#node.limits.lingerMs;
  }

  sweep(now: number): void {
    this.#history.forgetUnusedPages(now - this.#node.limits.pageIdleMs);
  }

  /** The deltas that a client must be shown which comes now, or was shown those through `order`. */
  keptDeltas(order: number): Iterable<Delta> {
    return this.#runs.keptDeltas(order);
  }

  /**
   * The next published message after `after`: `undefined` at the end, "log" when it must be
   * read first (`fetch`).
   */
  next(after: number, fetched?: Page): Entry | "log" | undefined {
    return this.#history.next(after, this.#published, fetched);
  }

  /** What follows `after` is in the ring: as complete as the tail is. */
  hasInRing(after: number): boolean {
    return this.#history.hasInRing(after);
  }

  /** Brings what follows `after` into memory, for `next`. Rejects with BrokerUnavailable. */
  fetch(after: number): Promise<Page> {
    return this.#history.fetch(after);
  }

  /** Waits until the hub has published through `streamSeq`; false when it does not in time, or `end` comes first. */
  reach(
    streamSeq: number,
    patienceMs: number = this.#node.limits.reachMs,
    end?: Promise<void>,
  ): Promise<boolean> {
    if (this.#published >= streamSeq) return Promise.resolve(true);
    return this.#reaching.wait(streamSeq, patienceMs, end);
  }

  close(): void {
    this.#phase = "closed";
    this.#stopFollowing();
    this.#history.close();
    this.#memory.release();
    this.#reaching.giveUp();
  }

  /** Tells every client that this hub cannot go on. */
  fail(error: Error): void {
    this.close();
    this.audience.lost(error);
  }

  #stopFollowing(): void {
    this.#tail?.close();
    this.#tail = undefined;
    this.#lane.close();
  }

  #message(m: LogMessage, late: boolean): void {
    if (this.#phase === "closed") return;
    const entry = this.#history.add(m, this.#runs.came(m), this.#published, late);
    // Older than what went out: it goes beside the order. Else it waits in its place.
    if (late && entry.streamSeq <= this.#published) {
      this.#publishLate(entry);
      return;
    }
    // The common case: nothing waits, and the turn has room.
    if (this.#unpublishedBytes === 0 && this.#mayPublish(entry)) {
      this.#publish(entry);
      return;
    }
    this.#unpublishedBytes += entry.bytes;
    if (this.#unpublishedBytes > this.#node.limits.unpublishedBytes) this.audience.leaveBehind();
    this.publishWaiting();
  }

  publishWaiting(): void {
    for (;;) {
      const entry = this.#history.firstUnpublished(this.#published);
      if (entry === undefined) return;
      if (!this.#mayPublish(entry)) {
        this.#node.metrics.deferred += 1;
        this.#node.turn.wait(this);
        return;
      }
      this.#unpublishedBytes -= entry.bytes;
      this.#publish(entry);
    }
  }

  #mayPublish(entry: Entry): boolean {
    return !this.audience.hasLive || this.#node.turn.take(entry.bytes);
  }

  #publish(entry: Entry): void {
    if (this.audience.hasLive) {
      for (const frame of entry.frames) {
        this.#node.publisher.publish(this.durableTopic, frame);
      }
      this.#node.metrics.published += entry.frames.length;
      this.#publishedAt = this.#node.now();
    }
    this.#published = entry.streamSeq;
    this.#newest = entry;
    this.#delivered(entry);
    if (entry.end && this.filter.kind === "run") this.#end();
    this.audience.moved();
    this.#reaching.reached(entry.streamSeq);
    this.#grew(entry.bytes);
  }

  /** Enough asks for a look: at 3,000 events a second, one after each is a tenth of the CPU. */
  #grew(bytes: number): void {
    this.#unlookedBytes += bytes;
    if (this.#unlookedBytes >= this.#node.limits.lookBytes) this.#node.turn.published(this);
  }

  #publishLate(entry: Entry): void {
    this.#node.metrics.late += 1;
    this.audience.missed(entry);
    this.#delivered(entry);
    this.#grew(entry.bytes);
  }

  #delivered(entry: Entry): void {
    this.#lane.delivered(entry);
    if (entry.end) this.#runs.ended(entry.run);
  }

  #end(): void {
    this.#phase = "ended";
    this.#stopFollowing();
    this.audience.ended();
  }

  look(): void {
    this.#unlookedBytes = 0;
    this.audience.look();
    this.#history.trim(this.#published);
    this.#memory.holds(this.#history.ringBytes + this.#runs.deltaBytes + this.#lane.unknownBytes);
  }

  evict(): void {
    this.#history.shrink(this.#published);
    this.#runs.clearDeltas();
    this.#lane.forgetUnknown();
    this.#memory.keeps(this.#history.ringBytes);
  }
}
