/**
 * What a provider's refusals, errors and silences mean: a code that a client can act on, and whether the
 * same again has a chance. A provider's own error object never goes to clients; of its words only those
 * that say what is wrong with the request. Pure.
 */
import { AgentError } from "@throughline/worker";
import { z } from "zod";
import { retryAfterMs } from "./retry-after.ts";

/** Longer than this is not waited for within a run: its worker's place would be held for nothing. */
const MAX_WAIT_MS = 15 * 60_000;
const MAX_WORDS = 500;

interface Kind {
  readonly code: string;
  readonly retryable: boolean;
  /** What clients are told; `words` are the provider's own, where they help the user. */
  readonly told: string;
  readonly words: boolean;
}

const KINDS = {
  rate_limited: {
    code: "rate_limited",
    retryable: true,
    told: "the model provider's rate limit is reached",
    words: false,
  },
  unavailable: {
    code: "provider_unavailable",
    retryable: true,
    told: "the model provider has a problem of its own",
    words: false,
  },
  quota: {
    code: "provider_quota",
    retryable: false,
    told: "the model provider's quota is used up",
    words: false,
  },
  // Its words may quote the key.
  unauthorized: {
    code: "provider_unauthorized",
    retryable: false,
    told: "the model provider does not accept this installation's credentials",
    words: false,
  },
  too_long: {
    code: "context_too_long",
    retryable: false,
    told: "the conversation is longer than the model takes",
    words: true,
  },
  refused: {
    code: "provider_refused",
    retryable: false,
    told: "the model provider refuses the request",
    words: true,
  },
} as const satisfies Record<string, Kind>;

const errorSchema = z.object({
  message: z.string().nullish(),
  type: z.string().nullish(),
  code: z.union([z.string(), z.number()]).nullish(),
});

export type ProviderError = z.infer<typeof errorSchema>;

/** `{"error": {…}}`, as a body or as a chunk of the stream; some send `{"error": "text"}`. */
const bodySchema = z
  .object({ error: z.union([errorSchema, z.string().min(1)]) })
  .transform(({ error }): ProviderError =>
    typeof error === "string" ? { message: error } : error,
  );

/** Undefined for what is no error. */
export function errorIn(value: unknown): ProviderError | undefined {
  const parsed = bodySchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}

export interface Refusal {
  readonly status: number;
  readonly headers: Headers;
  readonly error: ProviderError | undefined;
  /** ms since the epoch */
  readonly now: number;
}

/** An answer that is no stream. */
export function refusedError({ status, headers, error, now }: Refusal): AgentError {
  const kind = kindOf(status, error);
  const wait = kind.retryable ? retryAfterMs(headers, now) : undefined;
  const text = `${kind.told} (HTTP ${status})${wordsOf(kind, error)}`;
  if (wait !== undefined && wait > MAX_WAIT_MS) {
    return new AgentError(
      kind.code,
      `${text}; it asks to wait ${Math.ceil(wait / 60_000)} minutes`,
    );
  }
  return new AgentError(kind.code, text, {
    retryable: kind.retryable,
    ...(wait === undefined ? {} : { retryAfterMs: wait }),
  });
}

/** An error object in the middle of a stream: the answer so far is worth nothing. */
export function streamedError(error: ProviderError): AgentError {
  const status = Number(error.code);
  const kind = kindOf(Number.isInteger(status) && status >= 400 ? status : undefined, error);
  return new AgentError(kind.code, `${kind.told}${wordsOf(kind, error)}`, {
    retryable: kind.retryable,
  });
}

/** The connection could not be made, or broke before an answer. */
export function unreachableError(cause: unknown): AgentError {
  const code = systemCode(cause);
  return new AgentError(
    "provider_unreachable",
    `the model provider can't be reached${code === undefined ? "" : ` (${code})`}`,
    { retryable: true, cause },
  );
}

export function cutError(cause?: unknown): AgentError {
  return new AgentError("stream_cut", "the model's answer was cut off", {
    retryable: true,
    ...(cause === undefined ? {} : { cause }),
  });
}

export function silentError(idleMs: number): AgentError {
  return new AgentError(
    "provider_silent",
    `the model provider said nothing for ${Math.ceil(idleMs / 1000)} s`,
    { retryable: true },
  );
}

/** The answer is nothing that this API sends. Trying again would give the same. */
export function protocolError(why: string, cause?: unknown): AgentError {
  return new AgentError("provider_protocol", `the model provider's answer can't be read: ${why}`, {
    ...(cause === undefined ? {} : { cause }),
  });
}

function kindOf(status: number | undefined, error: ProviderError | undefined): Kind {
  const said = [error?.code, error?.type].filter((part) => typeof part === "string").join(" ");
  if (/insufficient_quota|billing/.test(said)) return KINDS.quota;
  if (/context_length|string_above_max_length/.test(said)) return KINDS.too_long;
  if (status !== undefined) return kindOfStatus(status);
  if (/rate_limit|too_many_requests/.test(said)) return KINDS.rate_limited;
  if (/authentication|permission|invalid_api_key/.test(said)) return KINDS.unauthorized;
  if (/invalid_request|not_found|content_filter|content_policy/.test(said)) return KINDS.refused;
  return KINDS.unavailable;
}

function kindOfStatus(status: number): Kind {
  if (status === 429) return KINDS.rate_limited;
  if (status === 401 || status === 403) return KINDS.unauthorized;
  if (status === 402) return KINDS.quota;
  // A time-out, a conflict and "too early" are the provider's own and pass.
  if (status >= 500 || status === 408 || status === 409 || status === 425) return KINDS.unavailable;
  return KINDS.refused;
}

function wordsOf(kind: Kind, error: ProviderError | undefined): string {
  const words = kind.words ? (error?.message?.trim() ?? "") : "";
  return words === "" ? "" : `: ${words.slice(0, MAX_WORDS)}`;
}

/** fetch wraps the system's error, more than once where several addresses were tried. */
function systemCode(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; depth++) {
    if ("code" in at && typeof at.code === "string") return at.code;
    at = at instanceof AggregateError ? at.errors[0] : at.cause;
  }
  return undefined;
}
