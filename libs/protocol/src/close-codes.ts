/*
 * Every code that an edge closes a WebSocket with, and what a client should do about it. The client,
 * the documentation and the metric labels all read this table.
 */

/**
 * now: reconnect with the cursor, after the goaway's delay if there was one.
 * backoff: wait longer after each try.
 * refresh: get a new token first.
 * never: the same again would end the same way.
 */
export type Reconnect = "now" | "backoff" | "refresh" | "never";

export interface CloseCode {
  readonly code: number;
  readonly name: string;
  readonly reconnect: Reconnect;
  readonly summary: string;
}

export const CLOSE_CODES = [
  {
    code: 1000,
    name: "done",
    reconnect: "never",
    summary: "The client asked for it, or what it followed has ended.",
  },
  {
    code: 1008,
    name: "policy",
    reconnect: "never",
    summary: "The handshake or its origin is against the operator's policy.",
  },
  {
    code: 1009,
    name: "too_big",
    reconnect: "backoff",
    summary: "A frame was over `max_frame_bytes`. Do not send that frame again.",
  },
  {
    code: 1012,
    name: "restart",
    reconnect: "now",
    summary: "The node drains. Reconnect after the goaway's delay.",
  },
  { code: 1013, name: "overloaded", reconnect: "backoff", summary: "The node has no room." },
  {
    code: 4400,
    name: "malformed",
    reconnect: "never",
    summary: "Frames that could not be read, repeatedly.",
  },
  {
    code: 4401,
    name: "unauthenticated",
    reconnect: "refresh",
    summary: "The token is missing, invalid or expired.",
  },
  {
    code: 4403,
    name: "forbidden",
    reconnect: "never",
    summary: "The token does not allow this connection.",
  },
  {
    code: 4408,
    name: "silent",
    reconnect: "now",
    summary: "No word from the client for too long.",
  },
  {
    code: 4410,
    name: "too_slow",
    reconnect: "now",
    summary: "The client stayed stuck. Nothing is lost: come back with the cursor.",
  },
  {
    code: 4429,
    name: "rate_limited",
    reconnect: "backoff",
    summary: "Too many frames, or too many connections.",
  },
] as const satisfies readonly CloseCode[];

export type CloseCodeName = (typeof CLOSE_CODES)[number]["name"];

const ADVICE: ReadonlyMap<number, Reconnect> = new Map(
  CLOSE_CODES.map((row) => [row.code, row.reconnect]),
);

/**
 * What a client should do after a close. Codes outside the table are no one's decision: 1006 is a cut
 * link or a node that was killed, 1001 and 1005 come from proxies. The run goes on, so the client comes back.
 */
export function closeAdvice(code: number): Reconnect {
  return ADVICE.get(code) ?? "now";
}
