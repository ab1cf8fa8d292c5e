import type { NatsConnection } from "@nats-io/nats-core";
import type { RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { HeaderText } from "./header-text.ts";

/** Body of `$JS.API.STREAM.MSG.GET.<stream>`, which the stream's leader alone answers. */
export type LeaderQuery =
  | { readonly seq: number }
  | { readonly last_by_subj: string }
  | { readonly seq: number; readonly next_by_subj: string };

const NO_MESSAGE = 10037;
const REQUEST_MS = 2_000;

interface MessageGetResponse {
  readonly error?: {
    readonly code: number;
    readonly err_code?: number;
    readonly description?: string;
  };
  readonly message?: {
    readonly subject: string;
    readonly seq: number;
    readonly hdrs?: string;
    readonly data?: string;
  };
}

/**
 * One stored message, read through the stream's leader (0.5 ms): a replica's "not there"
 * is stale on 4–14 % of reads right after an ack, so absence is concluded from here alone.
 * Undefined: the leader says that there is none. Rejects with BrokerUnavailable otherwise.
 */
export async function leaderRead(
  nc: NatsConnection,
  stream: string,
  query: LeaderQuery,
): Promise<RawMessage | undefined> {
  let response: MessageGetResponse;
  try {
    const reply = await nc.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify(query), {
      timeout: REQUEST_MS,
    });
    response = reply.json<MessageGetResponse>();
  } catch (error) {
    throw new BrokerUnavailable(`the leader of ${stream} did not answer`, { cause: error });
  }
  if (response.error) {
    if (response.error.err_code === NO_MESSAGE) return undefined;
    throw new BrokerUnavailable(
      `the leader of ${stream} refused a read: ${response.error.description ?? "no reason given"}`,
    );
  }
  const message = response.message;
  if (!message) throw new LogCorrupt(`${stream} answered a read with neither message nor error`);
  return {
    subject: message.subject,
    streamSeq: message.seq,
    headers: new HeaderText(Buffer.from(message.hdrs ?? "", "base64").toString("latin1")),
    body: Buffer.from(message.data ?? "", "base64"),
  };
}

/** Like `leaderRead`, tried again until the leader speaks, the time is over or the connection is closed. */
export async function leaderReadPatiently(
  nc: NatsConnection,
  stream: string,
  query: LeaderQuery,
  patienceMs: number,
): Promise<RawMessage | undefined> {
  const giveUpAt = Date.now() + patienceMs;
  for (;;) {
    try {
      return await leaderRead(nc, stream, query);
    } catch (error) {
      const isOver = nc.isClosed() || Date.now() >= giveUpAt;
      if (!(error instanceof BrokerUnavailable) || isOver) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
