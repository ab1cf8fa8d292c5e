import type { NatsConnection } from "@nats-io/nats-core";
import type { RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, ValueTooLarge } from "./errors.ts";
import { N } from "./headers.ts";
import { leaderReadPatiently } from "./leader-read.ts";
import { isFatalRefusal, publishAcked, REFUSED } from "./publish.ts";

/** Where one value is kept: the last message of a subject. */
export interface Place {
  readonly stream: string;
  readonly subject: string;
}

export interface NewValue {
  readonly body: Uint8Array;
  readonly fields?: Readonly<Record<string, string | number | undefined>>;
}

export type Swap =
  | { readonly kind: "stored"; readonly streamSeq: number }
  /** `decide` wanted no change; `held` is what it saw last. */
  | { readonly kind: "kept"; readonly held: RawMessage | undefined };

/** Room for subject and headers within NATS's `max_payload`, which counts headers too. */
const HEADER_BYTES = 4_096;
/** After a leader's `kill -9` appends come back in 4–8 s. */
export const PATIENCE_MS = 20_000;

const PUBLISH_MS = 3_000;
const RETRY_MS = 50;
/** NATS marks a deleted key of a bucket by a message with this header. */
const OPERATION = "KV-Operation";

/** A key that was deleted counts as never written. */
export function heldValue(raw: RawMessage | undefined): RawMessage | undefined {
  return raw?.headers.get(OPERATION) === "" ? raw : undefined;
}

/** Largest body of one message on this connection. */
export function maxBody(nc: NatsConnection): number {
  return (nc.info?.max_payload ?? 1024 * 1024) - HEADER_BYTES;
}

/**
 * Replaces the value of a place on the expectation of what was read there, through the leader.
 * `decide` is asked again after every refusal and every unknown outcome, so it meets its own value
 * too when the answer to a publish was lost: it must then want no change, or the same one.
 *
 * Rejects with ValueTooLarge, or with BrokerUnavailable when the outcome stayed unknown for 20 s.
 */
export async function compareAndSet(
  nc: NatsConnection,
  place: Place,
  decide: (held: RawMessage | undefined) => NewValue | undefined | Promise<NewValue | undefined>,
): Promise<Swap> {
  const { stream, subject } = place;
  const giveUpAt = Date.now() + PATIENCE_MS;
  let last: unknown;
  do {
    const query = { last_by_subj: subject };
    const raw = await leaderReadPatiently(nc, stream, query, giveUpAt - Date.now());
    const held = heldValue(raw);
    const wanted = await decide(held);
    if (!wanted) return { kind: "kept", held };
    // The client library throws for a body over the limit, and that would look like no answer.
    if (wanted.body.byteLength > maxBody(nc)) {
      throw new ValueTooLarge(`${subject} would hold ${wanted.body.byteLength} bytes`);
    }
    const fields = { ...wanted.fields, [N.expectedLastSubject]: raw?.streamSeq ?? 0 };
    const outcome = await publishAcked(nc, subject, wanted.body, fields, PUBLISH_MS);
    if (outcome.kind === "stored") return { kind: "stored", streamSeq: outcome.streamSeq };
    if (outcome.kind === "refused" && isFatalRefusal(outcome.code)) {
      throw new ValueTooLarge(`NATS refuses ${subject}: ${outcome.description}`);
    }
    last = outcome;
    // Somebody else was first: decided by the next read. Anything else needs time as well.
    if (outcome.kind === "refused" && outcome.code === REFUSED.wrongLastSequence) continue;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  } while (Date.now() < giveUpAt && !nc.isClosed());
  throw new BrokerUnavailable(`what became of ${subject} could not be learnt`, { cause: last });
}
