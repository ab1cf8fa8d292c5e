import type { OutgoingFrame, SendResult } from "../session/port.ts";
import type { Subscriber } from "./place.ts";

/** Why a client cannot be followed up from where it is. */
export type Broken = "dropped" | "hole" | "missed_too_much";

/** What becomes of an attachment whose socket does not take what it is sent. */
export interface OutletEnd {
  /** The socket is gone. */
  detach(): void;
  /** What the client holds is not known any more. */
  break(why: Broken): void;
}

/** The socket of one subscription: every send's result is looked at. False: the attachment is gone. */
export class Outlet {
  readonly #subscriber: Subscriber;
  readonly #end: OutletEnd;

  constructor(subscriber: Subscriber, end: OutletEnd) {
    this.#subscriber = subscriber;
    this.#end = end;
  }

  /** An event, or a delta. */
  send(frame: Uint8Array): boolean {
    return this.isTaken(this.#subscriber.socket.send(frame));
  }

  say(frame: OutgoingFrame): boolean {
    return this.isTaken(this.#subscriber.send(frame));
  }

  isTaken(result: SendResult): boolean {
    if (result === "sent" || result === "buffered") return true;
    if (result === "dropped") this.#end.break("dropped");
    else this.#end.detach();
    return false;
  }
}
