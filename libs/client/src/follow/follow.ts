/**
 * Following one run or one session, over whatever connections that takes.
 *
 * Two things are made of what arrives: the reduced state, which needs no one to take it away, and, for
 * as long as someone iterates, a queue of events. Both see each durable event once and in order. The
 * two may stand at different places: an iteration that begins late is given what it missed by asking
 * the server anew from its own position, and the state passes over what it has seen.
 */
import { type ControlFrameOf, parseCursor } from "@throughline/protocol";
import { ClientClosed, FollowClosed, FollowFailed } from "../errors.ts";
import type { IncomingEvent } from "../frame.ts";
import { Ledger, type Numbered, type Position } from "../subscription/ledger.ts";
import type { Consumer, Filter, Released, Subscription } from "../subscription/subscription.ts";
import type { FeedLimits } from "./feed.ts";
import { Holes } from "./holes.ts";
import { type Closed, type Entry, type FollowItem, type Gap, itemEntry } from "./item.ts";
import { Reader } from "./reader.ts";
import { Shown, type ShownSetup } from "./shown.ts";
import { callOut } from "./store.ts";

export interface FollowSetup<S> extends ShownSetup<S> {
  readonly filter: Filter;
  readonly position: Position;
  readonly deltas: boolean;
  readonly limits: FeedLimits;
  readonly onGap: ((gap: Gap) => void) | undefined;
  /** Nothing can come after this one. */
  readonly isEnd: (item: FollowItem) => boolean;
  /**
   * Puts a subscription on a connection on which it overlaps with no other.
   * @throws {ClientClosed}
   */
  readonly place: (consumer: Consumer) => Subscription;
}

/** With back-off, about a minute; a server that has not found an event by then has lost it. */
const MAX_REPAIRS = 8;

export class Follow<S> implements Consumer {
  readonly shown: Shown<S>;
  readonly reader: Reader;
  /** Resolves once, when following ends for the first time. */
  readonly closed: Promise<Closed>;
  readonly #setup: FollowSetup<S>;
  readonly #resolveClosed: (closed: Closed) => void;
  /** What has arrived, and is in the state and, where there is an iteration, in its queue. */
  #arrived: Ledger;
  #subscription: Subscription | undefined;
  /** The flow is stopped until the iteration has caught up. */
  #parked = false;
  /** Where the next subscription starts, if not behind what has arrived. */
  #detour: Position | undefined;
  readonly #holes: Holes = new Holes();
  /** The run's end has arrived. */
  #hasEnd = false;
  /** The server has said that the run has ended, and nothing had come of it. */
  #toldOfEnd = false;
  /** Closed or failed; a run's end is none, since an iteration may still go back. */
  #over = false;

  constructor(setup: FollowSetup<S>) {
    this.#setup = setup;
    const kind = setup.filter.run === undefined ? "session" : "run";
    this.#arrived = new Ledger(kind, setup.position);
    this.reader = new Reader(this.#arrived.clone(), setup.limits, setup.clock, {
      rewind: (from) => this.#rewind(from),
      low: () => this.#unpark(),
      detached: () => this.#unpark(),
      isEnd: setup.isEnd,
    });
    this.shown = new Shown(setup, {
      maxHeldBytes: setup.limits.bytes,
      missing: (run) => this.#gapOf(run, this.#arrived.cursor ?? ""),
      settled: (run, isOver) => {
        if (isOver && run === setup.filter.run) this.#ended();
      },
    });
    let resolveClosed: (closed: Closed) => void = () => undefined;
    this.closed = new Promise((resolve) => (resolveClosed = resolve));
    this.#resolveClosed = resolveClosed;
    this.#want();
  }

  get filter(): Filter {
    return this.#setup.filter;
  }

  get deltas(): boolean {
    return this.#setup.deltas;
  }

  /** Behind the last event consumed: by iterating where that was ever begun, else by the state. */
  get cursor(): string | undefined {
    return this.reader.hasBegun ? this.reader.cursor : this.#arrived.cursor;
  }

  /** Ends it for good. */
  finish(closed: Exclude<Closed, { reason: "run_ended" }>): void {
    if (this.#over) return;
    this.#over = true;
    this.#subscription?.rest();
    this.#resolveClosed(closed);
    this.reader.close(closed);
    const isFailed = closed.reason === "failed";
    this.shown.end(isFailed ? closed.error : new FollowClosed("closed before it was seen"));
  }

  position(): Position {
    return this.#detour ?? this.#arrived.resume(this.#setup.clock.now());
  }

  started(frame: ControlFrameOf<"subscribed">, asked: Position): void {
    this.shown.calls?.replaying();
    this.#detour = undefined;
    const skipsOnPurpose = "from" in asked && asked.from !== "start";
    if (frame.recovered || skipsOnPurpose) {
      this.#arrived.started(frame.cursor);
      this.reader.started(frame.cursor);
      return;
    }
    this.#arrived.restart(frame.cursor);
    this.shown.reset();
    this.#gap({
      type: "gap",
      session_id: frame.session_id,
      ...(frame.run_id === undefined ? {} : { run_id: frame.run_id }),
      ...(frame.reason === undefined ? {} : { reason: frame.reason }),
      cursor: frame.cursor,
    });
  }

  level(): void {
    this.shown.calls?.level();
  }

  snapshot(frame: ControlFrameOf<"snapshot">, bytes: number): void {
    const { run_id, cursor, state, state_url } = frame;
    const seq = state?.seq ?? parseCursor(cursor)?.seq;
    if (seq !== undefined) this.#arrived.baseline({ run_id, cursor, seq });
    if (state !== undefined) this.shown.snapshot(run_id, state);
    if (state_url !== undefined) this.shown.snapshot(run_id, { url: state_url, seq: seq ?? 0 });
    const session_id = this.filter.session;
    const held = state === undefined ? {} : { state };
    const named = state_url === undefined ? {} : { state_url };
    this.#push(
      itemEntry({ type: "snapshot", session_id, run_id, cursor, ...held, ...named }),
      bytes,
    );
  }

  event(incoming: IncomingEvent, bytes: number): void {
    if (incoming.kind !== "ephemeral") {
      const verdict = this.#arrived.judge(incoming.event);
      if (verdict === "duplicate") return;
      if (verdict === "hole" && !this.#isBeginning(incoming.event))
        return this.#repair(incoming.event.run_id);
      this.#arrived.record(incoming.event, this.#setup.clock.now());
      this.#holes.filled(incoming.event.run_id);
    }
    this.shown.event(incoming, bytes);
    this.#push(incoming.kind === "passed" ? incoming : itemEntry(incoming.event), bytes);
  }

  released(why: Released): void {
    this.#subscription = undefined;
    if (why.kind === "failed") this.finish(closedBy(why.error));
    else if (why.kind === "run_ended") this.#tellsOfEnd();
  }

  /**
   * The run has ended, says the server, and the terminal event has not come. Where there are events of
   * it, the rest is missing like any other. Where there is none, the cursor may have been behind the end.
   */
  #tellsOfEnd(): void {
    const { run } = this.filter;
    if (this.#hasEnd || run === undefined || this.shown.isComing(run)) return;
    if (this.#arrived.knows(run)) return this.#repair(run);
    if (this.#toldOfEnd) return this.#ended();
    this.#toldOfEnd = true;
    this.#want();
  }

  #push(entry: Entry, bytes: number): void {
    this.reader.push(entry, bytes);
    if (entry.kind === "item" && this.#setup.isEnd(entry.item)) return this.#ended();
    if (!this.reader.isFull || this.#parked) return;
    // The server cannot be told to wait, so the subscription is given back and taken up again from here.
    this.#parked = true;
    this.shown.effects.hold();
    this.#subscription?.rest();
  }

  #ended(): void {
    const { run } = this.filter;
    // Whoever waits for the end looks at the state then, which is not there yet.
    if (this.#over || (run !== undefined && this.shown.isComing(run))) return;
    this.#hasEnd = true;
    this.#parked = false;
    this.shown.effects.release();
    this.#subscription?.expectEnd();
    this.#resolveClosed({ reason: "run_ended" });
    this.reader.close({ reason: "run_ended" });
    this.shown.effects.end(new FollowFailed("run_ended", "the run has ended"));
  }

  /** An event before this one is missing. It is asked for again; nothing later is given meanwhile. */
  #repair(run: string): void {
    const repairs = this.#holes.missing(run);
    if (repairs > MAX_REPAIRS) {
      const message = `the server leaves out an event of ${run}, ${MAX_REPAIRS} times asked`;
      return this.finish({ reason: "failed", error: new FollowFailed("hole", message) });
    }
    this.#detour = this.#arrived.before(run);
    this.#place()?.again(repairs > 1);
  }

  /**
   * A session's runs are kept by age, event by event: of the oldest ones the beginning may be gone. So
   * a run of which nothing is here, and whose beginning did not come when the whole session was asked
   * for again, begins with this event; and that something is missing is said.
   */
  #isBeginning(event: Numbered): boolean {
    const wasAsked = this.#holes.asked(event.run_id) > 0;
    const isRun = this.filter.run !== undefined;
    if (isRun || !wasAsked || this.#arrived.knows(event.run_id)) return false;
    this.#arrived.admit(event);
    this.#gapOf(event.run_id, event.cursor);
    return true;
  }

  #gapOf(run_id: string, cursor: string): void {
    this.#gap({ type: "gap", session_id: this.filter.session, run_id, cursor });
  }

  #gap(gap: Gap): void {
    this.#push(itemEntry(gap), 0);
    const { onGap } = this.#setup;
    if (onGap !== undefined) callOut(() => onGap(gap));
  }

  #rewind(from: Ledger): void {
    this.#arrived = from;
    this.#detour = undefined;
    this.#hasEnd = false;
    this.#toldOfEnd = false;
    if (this.#subscription === undefined) this.#want();
    else this.#subscription.again(false);
  }

  #unpark(): void {
    if (!this.#parked) return;
    this.#parked = false;
    this.shown.effects.release();
    this.#want();
  }

  #want(): void {
    this.#place()?.want();
  }

  /** The subscription there is, or a new one. */
  #place(): Subscription | undefined {
    if (this.#over) return undefined;
    try {
      this.#subscription ??= this.#setup.place(this);
    } catch (error) {
      this.finish(closedBy(error));
    }
    return this.#subscription;
  }
}

/** Closing the client is closing all its handles. */
function closedBy(error: unknown): Exclude<Closed, { reason: "run_ended" }> {
  if (error instanceof ClientClosed && error.closed.kind === "stopped") return { reason: "closed" };
  return { reason: "failed", error: error instanceof Error ? error : new Error(String(error)) };
}
