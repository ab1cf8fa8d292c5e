import { formatCursor } from "@throughline/protocol";
import type { Credit } from "./credit.ts";
import { type Entry, restamped } from "./frame.ts";
import type { Hub } from "./hub.ts";
import type { LogFed } from "./log-fed.ts";
import type { FanoutNode } from "./node.ts";
import type { Outlet } from "./outlet.ts";
import type { Paced, Subscriber } from "./place.ts";
import { readAfter } from "./position.ts";

const RETRY_MS = 500;

/** Whom a feeder feeds: the attachment, which owns the place. */
export interface FedAttachment {
  isAt(place: Paced): boolean;
  /** It wants another step. */
  wake(): void;
  /** Nothing more is published behind its position. */
  arrived(place: Paced, after: number): void;
  break(why: "hole"): void;
  lost(error: Error): void;
}

/** Feeds a paced client from its position: out of the ring, else out of pages of the log. */
export class Feeder {
  readonly #node: FanoutNode;
  readonly #hub: Hub;
  readonly #subscriber: Subscriber;
  readonly #outlet: Outlet;
  readonly #credit: Credit | undefined;
  readonly #logFed: LogFed | undefined;
  readonly #fed: FedAttachment;

  constructor(
    node: FanoutNode,
    hub: Hub,
    subscriber: Subscriber,
    outlet: Outlet,
    credit: Credit | undefined,
    logFed: LogFed | undefined,
    fed: FedAttachment,
  ) {
    this.#node = node;
    this.#hub = hub;
    this.#subscriber = subscriber;
    this.#outlet = outlet;
    this.#credit = credit;
    this.#logFed = logFed;
    this.#fed = fed;
  }

  /** Sends up to one page from the position on; returns the bytes sent. To be called in a cork. */
  feed(place: Paced): number {
    const { pageBytes } = this.#node.limits;
    let room = pageBytes;
    for (let first = place.snapshots.shift(); first; first = place.snapshots.shift()) {
      const { result, bytes } = this.#subscriber.sendSnapshot(first);
      if (!this.#outlet.isTaken(result)) return 0;
      room -= bytes;
      if (this.#mustPause(place, room)) return pageBytes - room;
    }
    const { page } = place;
    place.page = undefined;
    for (let late = place.missed.shift(); late !== undefined; late = place.missed.shift()) {
      if (!this.sendMissed(late, place.cursor)) return 0;
      room -= late.bytes;
    }
    if (this.#mustPause(place, room)) return pageBytes - room;
    for (;;) {
      const after = readAfter(place.position);
      if (this.#mustWaitForCredit(after)) {
        place.waits = "credit";
        this.#node.metrics.creditWaits += 1;
        break;
      }
      const entry = this.#hub.next(after, page);
      if (entry === "log") {
        this.#fetch(place, after);
        break;
      }
      if (entry === undefined) {
        this.#fed.arrived(place, after);
        break;
      }
      // The run's previous message is behind `after` and was not in between: it has left the log.
      if (entry.prev > after) {
        this.#fed.break("hole");
        break;
      }
      if (!this.#hub.hasInRing(after)) this.#logFed?.add(after, entry.streamSeq);
      room -= this.#feedEntry(place, entry, room);
      if (!this.#fed.isAt(place) || this.#mustPause(place, room)) break;
    }
    return pageBytes - room;
  }

  sendMissed(entry: Entry, cursor: string): boolean {
    return restamped(entry, cursor).every((frame) => this.#outlet.send(frame));
  }

  /** There is more, and too much is unacknowledged. */
  #mustWaitForCredit(after: number): boolean {
    return this.#credit !== undefined && this.#credit.left === 0 && after < this.#hub.published;
  }

  /** It goes on when its socket has drained, or when the others have had their turn. */
  #mustPause(place: Paced, room: number): boolean {
    if (this.#subscriber.socket.buffered() > this.#node.limits.lowWater) {
      place.waits = "socket";
      return true;
    }
    if (room > 0) return false;
    place.waits = "turn";
    this.#fed.wake();
    return true;
  }

  /** Returns the bytes sent. A message larger than the room, or than the credit, is left in the middle. */
  #feedEntry(place: Paced, entry: Entry, room: number): number {
    const begun = entry.streamSeq === place.position.streamSeq && place.position.next > 0;
    let sent = 0;
    let seq = begun ? place.position.next : entry.firstSeq;
    for (; seq <= entry.lastSeq && sent < room && this.#credit?.left !== 0; seq += 1) {
      const frame = entry.frames[seq - entry.firstSeq];
      if (frame === undefined || !this.#outlet.send(frame)) return sent;
      sent += frame.byteLength;
      this.#credit?.sent(entry.tag, seq, entry.streamSeq);
      this.#node.metrics.fed += 1;
    }
    place.position = { streamSeq: entry.streamSeq, next: seq > entry.lastSeq ? 0 : seq };
    place.cursor = formatCursor({ seq: seq - 1, streamSeq: entry.streamSeq, tag: entry.tag });
    return sent;
  }

  #fetch(place: Paced, after: number): void {
    place.waits = "log";
    this.#hub.fetch(after).then(
      (page) => {
        place.page = page;
        this.#fed.wake();
      },
      (error: unknown) => {
        if (!this.#fed.isAt(place)) return;
        if (error instanceof Error && error.name === "BrokerUnavailable") {
          place.waits = "retry";
          this.#node.after(RETRY_MS, () => this.#fed.wake());
        } else this.#fed.lost(error instanceof Error ? error : new Error(String(error)));
      },
    );
  }
}
