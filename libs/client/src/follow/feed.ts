/** What has arrived and is not consumed yet. Bounded by its owner, who stops the flow when it is full. */
export interface FeedLimits {
  /** Items. */
  items: number;
  bytes: number;
}

interface Slot<T> {
  readonly item: T;
  readonly bytes: number;
}

export class Feed<T> {
  readonly #limits: FeedLimits;
  #slots: Slot<T>[] = [];
  /** Slots before it are taken; they are cut off in one go, since `shift` moves all the others. */
  #head = 0;
  #bytes = 0;

  constructor(limits: FeedLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#slots.length - this.#head;
  }

  /** Time to stop the flow. What is under way still goes in. */
  get isFull(): boolean {
    return this.size >= this.#limits.items || this.#bytes >= this.#limits.bytes;
  }

  /** Deltas are not kept for a consumer that is behind: the chunks have their text. */
  get hasRoomForDeltas(): boolean {
    return this.size < this.#limits.items / 2 && this.#bytes < this.#limits.bytes / 2;
  }

  /** Time to let it flow again. */
  get isLow(): boolean {
    return this.size <= this.#limits.items / 4 && this.#bytes <= this.#limits.bytes / 4;
  }

  push(item: T, bytes: number): void {
    this.#slots.push({ item, bytes });
    this.#bytes += bytes;
  }

  shift(): T | undefined {
    const slot = this.#slots[this.#head];
    if (slot === undefined) return undefined;
    this.#head += 1;
    this.#bytes -= slot.bytes;
    if (this.#head === this.#slots.length || this.#head >= 512) {
      this.#slots = this.#slots.slice(this.#head);
      this.#head = 0;
    }
    return slot.item;
  }
}
