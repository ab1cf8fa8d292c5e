import type { FanoutLimits } from "./limits.ts";

/** A hub, as the turn sees it. */
export interface Published {
  /** Looks at the sockets that its publishes of the last turn went to. */
  look(): void;
  /** Publishes what waits, as far as the turn has room. */
  publishWaiting(): void;
}

/** An attachment, as the turn sees it. */
export interface Due {
  /** Does a bounded piece of work; returns the bytes sent. */
  step(): number;
}

/**
 * The order of one turn of the event loop: publishes come in as messages arrive; then, once,
 * after they were flushed, a look at the sockets concerned, then what was left to publish, then
 * the paced clients. The look comes first, so that no socket is published to for a second turn
 * before it was looked at: a publish skips a socket over its limit without a word.
 */
export class Turn {
  readonly #limits: FanoutLimits;
  readonly #afterTurn: (run: () => void) => void;
  #scheduled = false;
  #room: number;
  readonly #published: Set<Published> = new Set();
  #waiting: Set<Published> = new Set();
  readonly #due: Set<Due> = new Set();

  /** `afterTurn` runs its argument when this turn's writes have been flushed: `setImmediate`. */
  constructor(limits: FanoutLimits, afterTurn: (run: () => void) => void) {
    this.#limits = limits;
    this.#afterTurn = afterTurn;
    this.#room = limits.turnBytes;
  }

  /** May `bytes` be published in this turn? If so they count. */
  take(bytes: number): boolean {
    if (bytes > this.#room && this.#room < this.#limits.turnBytes) return false;
    this.#room -= bytes;
    return true;
  }

  published(hub: Published): void {
    this.#published.add(hub);
    this.#schedule();
  }

  /** The hub has more to publish than the turn has room for. */
  wait(hub: Published): void {
    this.#waiting.add(hub);
    this.#schedule();
  }

  due(attachment: Due): void {
    this.#due.add(attachment);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#afterTurn(() => this.#run());
  }

  #run(): void {
    this.#scheduled = false;
    this.#room = this.#limits.turnBytes;
    for (const hub of this.#published) hub.look();
    this.#published.clear();
    if (this.#waiting.size > 0) {
      const waiting = this.#waiting;
      this.#waiting = new Set();
      for (const hub of waiting) hub.publishWaiting();
    }
    this.#feed();
  }

  #feed(): void {
    let room = this.#limits.feedBytes;
    // Each once: a Set iterates in order of insertion, and a step may add itself again at the end.
    let left = this.#due.size;
    for (const attachment of this.#due) {
      if (room <= 0 || left === 0) break;
      left -= 1;
      this.#due.delete(attachment);
      room -= attachment.step();
    }
    if (this.#due.size > 0) this.#schedule();
  }
}
