import type { Entry } from "./frame.ts";

export interface RingLimits {
  readonly bytes: number;
  readonly messages: number;
}

/**
 * The newest messages of a hub, in stream order and without a gap: everything of the filter in
 * (`from`, `to`]. Entries behind `published` have not gone out to live clients yet and are not
 * let go; the hub bounds how many there may be.
 */
export class Ring {
  readonly #limits: RingLimits;
  #entries: (Entry | undefined)[] = [];
  /** Index of the oldest entry kept: a shift of a long array at each message would copy it. */
  #head = 0;
  #bytes = 0;
  #from: number;
  #to: number;

  constructor(limits: RingLimits, from: number, to: number) {
    this.#limits = limits;
    this.#from = from;
    this.#to = to;
  }

  /** Everything after this stream sequence is here. */
  get from(): number {
    return this.#from;
  }

  get to(): number {
    return this.#to;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get length(): number {
    return this.#entries.length - this.#head;
  }

  push(entry: Entry, published: number): void {
    this.#entries.push(entry);
    this.#bytes += entry.bytes;
    this.#to = entry.streamSeq;
    this.trim(this.#limits, published);
  }

  /** Puts a repaired message where it belongs in the stream. One from before the ring is left to the log. */
  insert(entry: Entry): void {
    if (entry.streamSeq <= this.#from) return;
    const at = this.indexAfter(entry.streamSeq);
    this.#entries.splice(at, 0, entry);
    this.#bytes += entry.bytes;
  }

  /** Lets go of the oldest published entries until the rest is within the limits. */
  trim(limits: RingLimits, published: number): void {
    while (this.#head < this.#entries.length) {
      if (this.#bytes <= limits.bytes && this.length <= limits.messages) break;
      const oldest = this.#entries[this.#head];
      if (oldest === undefined || oldest.streamSeq > published) break;
      this.#entries[this.#head] = undefined;
      this.#head += 1;
      this.#bytes -= oldest.bytes;
      this.#from = oldest.streamSeq;
    }
    // Half empty: drop the empty half.
    if (this.#head > 16 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
  }

  covers(after: number): boolean {
    return after >= this.#from;
  }

  /** Index for `entryAt` of the first entry behind `after`. */
  indexAfter(after: number): number {
    let low = this.#head;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const entry = this.#entries[middle];
      if (entry !== undefined && entry.streamSeq <= after) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Indices hold until the next change of the ring. */
  entryAt(index: number): Entry | undefined {
    return this.#entries[index];
  }
}
