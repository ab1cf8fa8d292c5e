import { type MsgHdrs, type NatsConnection, headers as newHeaders } from "@nats-io/nats-core";

/** What became of a publish into a stream. Only a PubAck proves that it is stored. */
export type PublishOutcome =
  | { readonly kind: "stored"; readonly streamSeq: number; readonly duplicate: boolean }
  /** The server answered with an error (`err_code` of JetStream's API). */
  | { readonly kind: "refused"; readonly code: number; readonly description: string }
  /** No answer: it may or may not be stored, now or a little later. */
  | { readonly kind: "unknown"; readonly cause: unknown };

/** JetStream error codes that we act on. */
export const REFUSED = {
  wrongLastSequence: 10071,
  /** Another append with an expectation on this subject is being decided. */
  appendInFlight: 10164,
  /** The original of this Msg-Id is being decided. */
  duplicateInFlight: 10158,
} as const;

/** Refusals that no retry can turn: message too large, headers too large, stream full or sealed. */
const FATAL: ReadonlySet<number> = new Set([10054, 10077, 10097, 10109]);

export function isFatalRefusal(code: number): boolean {
  return FATAL.has(code);
}

interface PubAck {
  readonly seq?: number;
  readonly duplicate?: boolean;
  readonly error?: { readonly err_code?: number; readonly description?: string };
}

/**
 * Publishes and waits for the PubAck. The client library's own `js.publish` retries inside, which would
 * hide the unknown outcomes that the run writer has to settle, so the request is made here.
 */
export async function publishAcked(
  nc: NatsConnection,
  subject: string,
  body: Uint8Array,
  fields: Readonly<Record<string, string | number | undefined>>,
  timeoutMs: number,
): Promise<PublishOutcome> {
  let ack: PubAck;
  try {
    const reply = await nc.request(subject, body, {
      headers: toHeaders(fields),
      timeout: timeoutMs,
    });
    ack = reply.json<PubAck>();
  } catch (cause) {
    return { kind: "unknown", cause };
  }
  if (ack.error) {
    const { err_code: code = 0, description = "no reason given" } = ack.error;
    return { kind: "refused", code, description };
  }
  // A duplicate whose original is not yet committed is acknowledged with sequence 0.
  if (!ack.seq) return { kind: "unknown", cause: new Error("a PubAck without a sequence") };
  return { kind: "stored", streamSeq: ack.seq, duplicate: ack.duplicate ?? false };
}

export function toHeaders(fields: Readonly<Record<string, string | number | undefined>>): MsgHdrs {
  const headers = newHeaders();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) headers.set(name, String(value));
  }
  return headers;
}
