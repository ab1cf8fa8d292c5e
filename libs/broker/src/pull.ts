import {
  createInbox,
  type Msg,
  nanos,
  type NatsConnection,
  type Subscription,
} from "@nats-io/nats-core";
import { type Delivery, parseDelivery } from "./delivery.ts";

/** How a pull ended. A pull that was filled, or ran out of time, is `done`. */
export type PullEnd =
  | { readonly kind: "done" }
  /** Leadership change, time-out without a word, too many open pulls: try again after a while. */
  | { readonly kind: "retry"; readonly reason: string }
  /** Nobody answers for the consumer, or it was deleted: look after it first. */
  | { readonly kind: "gone"; readonly reason: string }
  /** The server will never take such a pull. */
  | { readonly kind: "refused"; readonly reason: string };

/** Pure: what a status message on a pull's inbox means. */
export function pullEnd(code: number, description: string): PullEnd {
  const reason = `${code} ${description}`.trim();
  if (code === 404 || (code === 408 && /request timeout|interest expired/i.test(description))) {
    return { kind: "done" };
  }
  if (code === 503 || /consumer deleted|stream deleted/i.test(description)) {
    return { kind: "gone", reason: code === 503 ? "nobody answers for the consumer" : reason };
  }
  const retriable = /leadership change|server shutdown|exceeded maxwaiting/i.test(description);
  return { kind: retriable ? "retry" : "refused", reason };
}

/** Grace over a pull's own expiry before its silence means that it was lost. */
const SILENCE_MS = 1_000;
const CLOSE_MS = 1_000;

type LaneState =
  | { readonly kind: "idle" }
  | {
      readonly kind: "pulling";
      readonly number: number;
      left: number;
      readonly timer: NodeJS.Timeout;
    }
  | { readonly kind: "closed" };

export interface PullLaneOptions {
  readonly nc: NatsConnection;
  readonly stream: string;
  readonly consumer: string;
  readonly onDelivery: (delivery: Delivery) => void;
  /** The pull is over; the lane is idle. Not told when the lane was closed. */
  readonly onEnd: (end: PullEnd) => void;
}

/**
 * At most one pull in flight on one consumer. The library's own `fetch` and `consume` take a
 * message off the server and drop it when they are stopped, which costs that run an `ack_wait`;
 * this lane hands over everything that ever arrives, so that the caller can give it back.
 */
export class PullLane {
  readonly #options: PullLaneOptions;
  readonly #inbox: string;
  readonly #replies: Subscription;
  #state: LaneState = { kind: "idle" };
  #pulls = 0;

  constructor(options: PullLaneOptions) {
    this.#options = options;
    this.#inbox = createInbox();
    this.#replies = options.nc.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#take(message);
      },
    });
  }

  get isIdle(): boolean {
    return this.#state.kind === "idle";
  }

  /** Deliveries that the open pull may still bring. */
  get outstanding(): number {
    return this.#state.kind === "pulling" ? this.#state.left : 0;
  }

  pull(batch: number, expiresMs: number): void {
    if (this.#state.kind !== "idle") return;
    const { nc, stream, consumer } = this.#options;
    const number = (this.#pulls += 1);
    const timer = setTimeout(
      () => this.#end({ kind: "retry", reason: "no word from the consumer" }),
      expiresMs + SILENCE_MS,
    );
    this.#state = { kind: "pulling", number, left: batch, timer };
    nc.publish(
      `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
      // A fraction of a nanosecond would be a bad request.
      JSON.stringify({ batch, expires: nanos(Math.ceil(expiresMs)) }),
      { reply: `${this.#inbox}.${number}` },
    );
  }

  /** The connection was lost, and with it the open pull: idle again, without `onEnd`. */
  reset(): void {
    if (this.#state.kind !== "pulling") return;
    clearTimeout(this.#state.timer);
    this.#state = { kind: "idle" };
  }

  /** Ends the open pull at the server. What it delivered before still comes to `onDelivery`. */
  async close(): Promise<void> {
    if (this.#state.kind === "closed") return;
    if (this.#state.kind === "pulling") clearTimeout(this.#state.timer);
    this.#state = { kind: "closed" };
    if (this.#options.nc.isClosed()) return;
    // While disconnected there is no answer to wait for: the server ended the pull with the connection.
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_MS);
    });
    await Promise.race([this.#replies.drain(), patience]);
    clearTimeout(timer);
  }

  #take(message: Msg): void {
    const delivery = parseDelivery(message);
    if (delivery) {
      this.#deliver(delivery);
      return;
    }
    const code = message.headers?.code ?? 0;
    if (code === 0 || code === 100) return;
    const number = Number(message.subject.slice(this.#inbox.length + 1));
    if (this.#state.kind !== "pulling" || this.#state.number !== number) return;
    this.#end(pullEnd(code, message.headers?.description ?? ""));
  }

  #deliver(delivery: Delivery): void {
    const state = this.#state;
    if (state.kind === "pulling") state.left -= 1;
    this.#options.onDelivery(delivery);
    if (state.kind === "pulling" && state.left <= 0 && this.#state === state) {
      this.#end({ kind: "done" });
    }
  }

  #end(end: PullEnd): void {
    if (this.#state.kind !== "pulling") return;
    clearTimeout(this.#state.timer);
    this.#state = { kind: "idle" };
    this.#options.onEnd(end);
  }
}
