import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/nats-core";
import { type Place, PATIENCE_MS } from "./compare-and-set.ts";
import { BrokerUnavailable, ValueTooLarge } from "./errors.ts";
import { H, N } from "./headers.ts";
import { leaderReadPatiently } from "./leader-read.ts";
import { isFatalRefusal, publishAcked } from "./publish.ts";

/**
 * Bytes of one chunk, and the most that an object may have to be one message. A quarter of NATS's
 * default `max_payload`: a leader's answer holds a message in base64.
 */
export const CHUNK_BYTES: number = 256 * 1024;

const PUBLISH_MS = 3_000;
const RETRY_MS = 50;

/** A name that nobody else uploads under. */
export function newUpload(): string {
  return randomBytes(12).toString("base64url");
}

/**
 * Chunks of one object, appended one after the other to a subject of their own. Each expects the
 * one before it, so that a repeat after an unknown outcome is stored once. What an upload leaves
 * behind that was never finished goes by the stream's age.
 */
export class Upload {
  readonly #nc: NatsConnection;
  readonly #place: Place;
  #first = 0;
  #last = 0;
  #chunks = 0;

  constructor(nc: NatsConnection, place: Place) {
    this.#nc = nc;
    this.#place = place;
  }

  /** Stream sequence of the first chunk. */
  get first(): number {
    return this.#first;
  }

  get chunks(): number {
    return this.#chunks;
  }

  /** One chunk of at most CHUNK_BYTES. Rejects with BrokerUnavailable after 20 s. */
  async append(chunk: Uint8Array): Promise<void> {
    const giveUpAt = Date.now() + PATIENCE_MS;
    const fields = { [H.chunk]: this.#chunks, [N.expectedLastSubject]: this.#last };
    let last: unknown;
    do {
      const { subject } = this.#place;
      const outcome = await publishAcked(this.#nc, subject, chunk, fields, PUBLISH_MS);
      if (outcome.kind === "stored") return this.#stored(outcome.streamSeq);
      if (outcome.kind === "refused" && isFatalRefusal(outcome.code)) {
        throw new ValueTooLarge(`NATS refuses a chunk: ${outcome.description}`);
      }
      last = outcome;
      const found = await this.#lastStored(giveUpAt);
      if (found?.chunk === this.#chunks) return this.#stored(found.streamSeq);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    } while (Date.now() < giveUpAt && !this.#nc.isClosed());
    throw new BrokerUnavailable("a chunk of an object was not confirmed", { cause: last });
  }

  #stored(streamSeq: number): void {
    if (this.#chunks === 0) this.#first = streamSeq;
    this.#last = streamSeq;
    this.#chunks += 1;
  }

  async #lastStored(giveUpAt: number): Promise<{ chunk: number; streamSeq: number } | undefined> {
    const { stream, subject } = this.#place;
    const patience = Math.max(0, giveUpAt - Date.now());
    const raw = await leaderReadPatiently(this.#nc, stream, { last_by_subj: subject }, patience);
    return raw && { chunk: Number(raw.headers.get(H.chunk)), streamSeq: raw.streamSeq };
  }
}
