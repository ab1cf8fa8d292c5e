import { type Msg, type MsgHdrs, type NatsConnection, RequestError } from "@nats-io/nats-core";
import type { Broker } from "./broker.ts";
import { BrokerUnavailable } from "./errors.ts";

/** A message handed out by a pull consumer, with the token that acks, extends or gives it back. */
export interface Delivery {
  readonly subject: string;
  readonly headers: MsgHdrs;
  readonly body: Uint8Array;
  /** Position of the message in its stream. */
  readonly streamSeq: number;
  /** 1 for the first delivery. Never decides anything: the log does. */
  readonly delivered: number;
  /** When the stream stored the message, ms since the epoch. */
  readonly storedAt: number;
  /** The ack token. After a redelivery to somebody else the old one still extends and acks. */
  readonly token: string;
}

/**
 * Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>`;
 * with a domain, two tokens (domain and account) come before the stream.
 * Undefined for what no consumer sent.
 */
export function parseDelivery(message: Msg): Delivery | undefined {
  const token = message.reply;
  if (!token?.startsWith("$JS.ACK.") || !message.headers) return undefined;
  const tokens = token.split(".");
  const at = tokens.length === 9 ? 4 : 6;
  const delivered = Number(tokens[at]);
  const streamSeq = Number(tokens[at + 1]);
  const storedAt = Math.floor(Number(tokens[at + 3]) / 1_000_000);
  if (![delivered, streamSeq, storedAt].every((n) => Number.isSafeInteger(n) && n > 0)) {
    return undefined;
  }
  const { subject, headers, data: body } = message;
  return { subject, headers, body, streamSeq, delivered, storedAt, token };
}

const CONFIRM_MS = 1_000;
const RETRY_MS = 100;

/** `-NAK`, with a delay in ms: redelivered after it, at once without one. */
export function nakOf(delayMs?: number): string {
  if (delayMs === undefined || delayMs <= 0) return "-NAK";
  return `-NAK {"delay": ${Math.ceil(delayMs) * 1_000_000}}`;
}

/** Answers a delivery without waiting for the server's word. While disconnected it is lost without a word. */
export function say(nc: NatsConnection, delivery: Delivery, word: string): void {
  if (!nc.isClosed()) nc.publish(delivery.token, word);
}

/**
 * Answers a delivery and waits until the server has taken it, trying again for `patienceMs`.
 * Rejects with BrokerUnavailable: the answer may or may not have been taken.
 */
export async function confirm(
  nc: NatsConnection,
  delivery: Delivery,
  word: string,
  patienceMs: number,
): Promise<void> {
  const giveUpAt = Date.now() + patienceMs;
  for (;;) {
    try {
      await nc.request(delivery.token, word, { timeout: CONFIRM_MS });
      return;
    } catch (error) {
      if (nc.isClosed() || Date.now() >= giveUpAt) {
        throw new BrokerUnavailable(`no answer to ${word} of ${delivery.subject}`, {
          cause: error,
        });
      }
      // No responders come back at once; a time-out has waited already.
      if (error instanceof RequestError) await pause(RETRY_MS);
    }
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * "In progress" for all deliveries in this process's hands, every third of `ack_wait`, by one
 * timer: with 10,000 runs a timer each would be a timer wheel of its own.
 */
export class InProgress {
  readonly #broker: Pick<Broker, "nc" | "connection">;
  readonly #ackWaitMs: number;
  readonly #onGap: () => void;
  readonly #held: Set<Delivery> = new Set();
  readonly #timer: NodeJS.Timeout;
  #lastBeat = performance.now();

  /** `onGap`: this process said nothing for longer than `ack_wait` (it was frozen), so jobs may have gone on elsewhere. */
  constructor(
    broker: Pick<Broker, "nc" | "connection">,
    ackWaitMs: number,
    onGap: () => void = () => undefined,
  ) {
    this.#broker = broker;
    this.#ackWaitMs = ackWaitMs;
    this.#onGap = onGap;
    this.#timer = setInterval(() => this.beat(), Math.max(10, ackWaitMs / 3));
  }

  hold(delivery: Delivery): void {
    this.#held.add(delivery);
  }

  release(delivery: Delivery): void {
    this.#held.delete(delivery);
  }

  /** Also called when the connection comes back: what was said meanwhile did not arrive. */
  beat(): void {
    if (this.#broker.connection === "down") return;
    const now = performance.now();
    const gap = now - this.#lastBeat;
    this.#lastBeat = now;
    for (const delivery of this.#held) say(this.#broker.nc, delivery, "+WPI");
    if (gap > this.#ackWaitMs) this.#onGap();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#held.clear();
  }
}
