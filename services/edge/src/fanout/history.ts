import type { LogFilter, LogMessage } from "@throughline/broker";
import { type Entry, frameMessage, type RunMark, RunMarks } from "./frame.ts";
import type { FanoutNode } from "./node.ts";
import { type Page, Pages } from "./pages.ts";
import { Ring } from "./ring.ts";
import { Slab } from "./slab.ts";

const RING_BLOCK = 16 * 1024;
const PAGE_BLOCK = 64 * 1024;
const READ_MESSAGES = 256;

/** What of a hub's log is in memory: the ring of the newest messages, and pages of older ones. */
export class History {
  readonly #node: FanoutNode;
  readonly #filter: LogFilter;
  readonly #ring: Ring;
  readonly #pages: Pages;
  readonly #slab: Slab = new Slab(RING_BLOCK);

  /** Begins with everything in (`from`, `to`] still to come by `add`: nothing if they are equal. */
  constructor(node: FanoutNode, filter: LogFilter, from: number, to: number) {
    this.#node = node;
    this.#filter = filter;
    this.#ring = new Ring(node.limits.ring, from, to);
    this.#pages = new Pages((after, upTo) => this.#read(after, upTo), node.budget, node.now);
  }

  get ringBytes(): number {
    return this.#ring.bytes;
  }

  /** Frames a message and puts it at the end, or where it belongs if it is `late`. */
  add(m: LogMessage, mark: RunMark, published: number, late: boolean): Entry {
    const entry = frameMessage(m, mark, this.#slab);
    if (late) this.#ring.insert(entry);
    else this.#ring.push(entry, published);
    return entry;
  }

  /** The first message in the ring behind `after`. */
  firstUnpublished(after: number): Entry | undefined {
    return this.#ring.entryAt(this.#ring.indexAfter(after));
  }

  /**
   * The next message in (`after`, `published`]: `undefined` for none, "log" when it must be
   * fetched first. `fetched` is what a fetch has brought.
   */
  next(after: number, published: number, fetched?: Page): Entry | "log" | undefined {
    for (let place = after; place < published;) {
      if (this.#ring.covers(place)) {
        const entry = this.firstUnpublished(place);
        return entry !== undefined && entry.streamSeq <= published ? entry : undefined;
      }
      const page = covers(fetched, place) ? fetched : this.#pages.covering(place);
      if (page === undefined) return "log";
      const entry = firstBehind(page, place);
      if (entry !== undefined) return entry;
      place = page.to;
    }
    return undefined;
  }

  hasInRing(after: number): boolean {
    return this.#ring.covers(after);
  }

  /**
   * Reads until what follows `after` is known. Returns it as one page from there on: with little
   * memory, pages may be let go again before anybody looks. Rejects with BrokerUnavailable.
   */
  async fetch(after: number): Promise<Page> {
    let place = after;
    while (!this.#ring.covers(place)) {
      const page =
        this.#pages.covering(place) ?? (await this.#pages.want(place, () => this.#ring.from));
      if (firstBehind(page, place) !== undefined) return { ...page, after };
      place = Math.max(place, page.to);
    }
    return { after, to: place, entries: [] };
  }

  /** Brings the ring back within its limits. */
  trim(published: number): void {
    this.#ring.trim(this.#node.limits.ring, published);
  }

  /** Lets go of all that is published: the log has it. */
  shrink(published: number): void {
    this.#ring.trim({ bytes: 0, messages: 0 }, published);
  }

  forgetUnusedPages(before: number): void {
    this.#pages.forgetUnused(before);
  }

  close(): void {
    this.#pages.clear();
  }

  async #read(after: number, upTo: number): Promise<{ entries: Entry[]; end: boolean }> {
    const { log, reads, limits, metrics } = this.#node;
    metrics.logReads += 1;
    const page = await reads.run(() =>
      log.read(this.#filter, after, { messages: READ_MESSAGES, bytes: limits.pageBytes, upTo }),
    );
    const slab = new Slab(PAGE_BLOCK);
    const marks = new RunMarks();
    const entries = page.messages.map((m) => frameMessage(m, marks.of(m), slab));
    return { entries, end: page.end };
  }
}

function covers(page: Page | undefined, after: number): page is Page {
  return page !== undefined && page.after <= after && after < page.to;
}

/** Binary search: a page of 128 KiB may hold a thousand messages, and is asked once for each. */
function firstBehind(page: Page, after: number): Entry | undefined {
  let low = 0;
  let high = page.entries.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const entry = page.entries[middle];
    if (entry !== undefined && entry.streamSeq <= after) low = middle + 1;
    else high = middle;
  }
  return page.entries[low];
}
