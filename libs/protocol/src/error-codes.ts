/*
 * Every code of `error`, `command.rejected` and HTTP problem bodies. `retry` says whether the very
 * same request can succeed later by itself.
 */

export interface ErrorRow {
  readonly status: number;
  readonly retry: boolean;
  readonly summary: string;
}

export const ERROR_CODES = {
  malformed: {
    status: 400,
    retry: false,
    summary:
      "Not a JSON object with a `type` and a valid `id`; or a connect request for another protocol.",
  },
  unknown_type: { status: 400, retry: false, summary: "No command has this `type`." },
  invalid: {
    status: 422,
    retry: false,
    summary: "A field is missing, of the wrong type or out of range; the message names its path.",
  },
  too_large: { status: 413, retry: false, summary: "The frame, body or upload is over its limit." },
  unauthenticated: {
    status: 401,
    retry: false,
    summary: "No valid credentials, or they have expired.",
  },
  forbidden: {
    status: 403,
    retry: false,
    summary: "Known and visible, but not allowed to this user.",
  },
  not_found: {
    status: 404,
    retry: false,
    summary: "No such session, run, step, request or artifact, or none that this user may see.",
  },
  method_not_allowed: {
    status: 405,
    retry: false,
    summary: "The path does not take this HTTP method; `Allow` says which.",
  },
  upgrade_required: { status: 426, retry: false, summary: "The path takes WebSockets only." },
  already_subscribed: {
    status: 409,
    retry: false,
    summary: "The connection already has a subscription that covers this.",
  },
  too_many_subscriptions: {
    status: 409,
    retry: false,
    summary: "The connection has as many subscriptions as it may.",
  },
  idempotency_conflict: {
    status: 409,
    retry: false,
    summary: "This command id was used before with another content.",
  },
  stale: {
    status: 409,
    retry: false,
    summary: "What was answered has moved on: the claim lapsed, or the arguments changed.",
  },
  already_resolved: {
    status: 409,
    retry: false,
    summary: "Somebody or something else answered first; `current` says how.",
  },
  run_ended: { status: 409, retry: false, summary: "The run has had its terminal event." },
  not_allowed: {
    status: 409,
    retry: false,
    summary: "The run's state does not allow this command; `current` says what it is.",
  },
  agent_unavailable: { status: 503, retry: true, summary: "No worker offers this agent." },
  quota_exceeded: {
    status: 429,
    retry: true,
    summary: "The tenant or user has as many runs or connections as it may.",
  },
  rate_limited: { status: 429, retry: true, summary: "Too many requests; wait `retry_after_ms`." },
  overloaded: { status: 503, retry: true, summary: "The node has no room; another may." },
  unavailable: {
    status: 503,
    retry: true,
    summary: "Something the node depends on does not answer; wait `retry_after_ms`.",
  },
  internal: {
    status: 500,
    retry: true,
    summary: "A fault of the node. Send the same command id again.",
  },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** True for a code of this version's table. Newer servers may send others. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_CODES, code);
}
