import { ERROR_CODES, type ErrorCode } from "@throughline/protocol";

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
  /** Called once: when the body has gone out, or nobody takes it any more. */
  readonly sent?: () => void;
}

/** Where nobody knows better when to ask again. */
const RETRY_MS = 1_000;

const JSON_TYPE = "application/json";

export function json(status: number, value: unknown): Reply {
  return jsonText(status, JSON.stringify(value));
}

export function jsonText(status: number, body: string | Uint8Array): Reply {
  return { status, headers: { "Content-Type": JSON_TYPE, "Cache-Control": "no-store" }, body };
}

/** A status that says it all. */
export function empty(status: 204, headers: Reply["headers"] = {}): Reply {
  return { status, headers: { "Cache-Control": "no-store", ...headers }, body: "" };
}

/** An RFC 9457 problem with our code and the status that the table gives it. */
export function problem(
  code: ErrorCode,
  detail: string,
  more: {
    readonly retryAfterMs?: number;
    readonly current?: unknown;
    readonly headers?: Readonly<Record<string, string>>;
  } = {},
): Reply {
  const { status } = ERROR_CODES[code];
  const mayPass = status === 429 || status === 503;
  const { current, retryAfterMs = mayPass ? RETRY_MS : undefined } = more;
  const retry = retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs };
  return {
    status,
    headers: {
      "Content-Type": "application/problem+json",
      "Cache-Control": "no-store",
      ...(retryAfterMs === undefined
        ? {}
        : { "Retry-After": String(Math.ceil(retryAfterMs / 1_000)) }),
      ...more.headers,
    },
    body: JSON.stringify({
      title: ERROR_CODES[code].summary,
      status,
      code,
      detail,
      ...retry,
      current,
    }),
  };
}
