/**
 * The iterator's side of a handle: the queue, and how far the iteration has come.
 *
 * Without an iteration nothing is queued, so a handle of which only the state is used holds no events;
 * that something was missed is remembered, and an iteration that begins later starts by asking for it.
 */
import type { Clock } from "../clock.ts";
import type { Ledger } from "../subscription/ledger.ts";
import { Feed, type FeedLimits } from "./feed.ts";
import type { Closed, Entry, FollowItem, Gap } from "./item.ts";

export interface ReaderHooks {
  /** An iteration begins that needs events again from here. */
  rewind(from: Ledger): void;
  /** The queue has room again. */
  low(): void;
  /** The iteration was left. */
  detached(): void;
  /** After this one there is none. */
  isEnd(item: FollowItem): boolean;
}

type Result = IteratorResult<FollowItem, undefined>;
interface Waiter {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: Error) => void;
}

const DONE: Result = { done: true, value: undefined };

export class Reader {
  readonly #consumed: Ledger;
  readonly #limits: FeedLimits;
  readonly #clock: Clock;
  readonly #hooks: ReaderHooks;
  #feed: Feed<Entry> | undefined;
  #waiters: Waiter[] = [];
  #begun = false;
  #missed = false;
  #endGiven = false;
  #closed: Closed | undefined;

  constructor(consumed: Ledger, limits: FeedLimits, clock: Clock, hooks: ReaderHooks) {
    this.#consumed = consumed;
    this.#limits = limits;
    this.#clock = clock;
    this.#hooks = hooks;
  }

  /** There is or was an iteration. */
  get hasBegun(): boolean {
    return this.#begun;
  }

  get cursor(): string | undefined {
    return this.#consumed.cursor;
  }

  get isFull(): boolean {
    return this.#feed?.isFull ?? false;
  }

  /** The server has named the place where the subscription started. */
  started(cursor: string): void {
    this.#consumed.started(cursor);
  }

  push(entry: Entry, bytes: number): void {
    if (this.#feed === undefined) {
      if (!isDelta(entry)) this.#missed = true;
      return;
    }
    if (isDelta(entry) && !this.#feed.hasRoomForDeltas) return;
    this.#feed.push(entry, bytes);
    this.#serve();
  }

  /** No more will be pushed. What is queued is still given, unless the owner closed the handle. */
  close(closed: Closed): void {
    this.#closed = closed;
    if (closed.reason === "closed" && this.#feed !== undefined) this.#feed = new Feed(this.#limits);
    this.#serve();
  }

  iterate(): AsyncIterator<FollowItem, undefined, undefined> {
    let own: Feed<Entry> | undefined;
    let over = false;
    const isOver = (): boolean => over || (own !== undefined && own !== this.#feed);
    return {
      next: () => {
        if (isOver()) return Promise.resolve(DONE);
        if (own === undefined) {
          if (this.#feed !== undefined)
            return Promise.reject(new TypeError("this handle is being iterated already"));
          own = this.#attach();
        }
        return new Promise((resolve, reject) => {
          this.#waiters.push({ resolve, reject });
          this.#serve();
        });
      },
      return: () => {
        if (own !== undefined && !isOver()) this.#detach();
        over = true;
        return Promise.resolve(DONE);
      },
    };
  }

  #attach(): Feed<Entry> {
    const feed = new Feed<Entry>(this.#limits);
    this.#begun = true;
    this.#feed = feed;
    if (!this.#missed) return feed;
    this.#missed = false;
    // The run has ended for those who saw its end; this iteration is not there yet.
    if (this.#closed?.reason === "run_ended") this.#closed = undefined;
    if (this.#closed === undefined) this.#hooks.rewind(this.#consumed.clone());
    return feed;
  }

  #detach(): void {
    if (this.#feed !== undefined && this.#feed.size > 0) this.#missed = true;
    this.#finish(({ resolve }) => resolve(DONE));
    this.#hooks.detached();
  }

  #serve(): void {
    const feed = this.#feed;
    while (feed !== undefined && this.#waiters.length > 0) {
      const entry = feed.shift();
      if (entry === undefined) return this.#settle();
      if (feed.isLow) this.#hooks.low();
      this.#count(entry);
      if (entry.kind === "passed") continue;
      if (this.#hooks.isEnd(entry.item)) this.#endGiven = true;
      this.#waiters.shift()?.resolve({ done: false, value: entry.item });
    }
  }

  /** The queue is empty: those who wait go on waiting, unless nothing can come. */
  #settle(): void {
    if (this.#endGiven) return this.#finish(({ resolve }) => resolve(DONE));
    const closed = this.#closed;
    if (closed === undefined) return;
    if (closed.reason === "failed") this.#finish(({ reject }) => reject(closed.error));
    else this.#finish(({ resolve }) => resolve(DONE));
  }

  /** The iteration is over. */
  #finish(settle: (waiter: Waiter) => void): void {
    this.#feed = undefined;
    for (const waiter of this.#waiters.splice(0)) settle(waiter);
  }

  #count(entry: Entry): void {
    if (entry.kind === "passed") return this.#consumed.record(entry.event, this.#clock.now());
    const { item } = entry;
    if (item.type === "gap") this.#passGap(item);
    else if (item.type === "snapshot") {
      const { run_id, cursor, state } = item;
      if (state !== undefined) this.#consumed.baseline({ run_id, cursor, seq: state.seq });
    } else if ("seq" in item) this.#consumed.record(item, this.#clock.now());
  }

  #passGap(gap: Gap): void {
    // Of one run in a session: its next event says where it stands, the others are not concerned.
    if (this.#consumed.ofSession && gap.run_id !== undefined) return;
    this.#consumed.restart(gap.cursor);
  }
}

function isDelta(entry: Entry): boolean {
  if (entry.kind === "passed") return false;
  const { item } = entry;
  return item.type !== "gap" && item.type !== "snapshot" && !("seq" in item);
}
