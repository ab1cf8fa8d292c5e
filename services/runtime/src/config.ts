import { readFileSync } from "node:fs";
import {
  ConfigError,
  list,
  loadConfig,
  milliseconds,
  optionalText,
  sharedSettings,
  wholeNumber,
} from "@throughline/service-kit";
import { z } from "zod";
import { errorCode } from "./roots.ts";

const schema = z.object({
  ...sharedSettings,
  /** Colon separated: the folders that agents may read. None by default. */
  TL_ALLOWED_ROOTS: list(":"),
  /** Runs hosted at a time. */
  TL_CAPACITY: wholeNumber(100, { min: 1, max: 100_000 }),
  /** After so long without a sign of life a run goes to another worker. Less than a GC pause would be a flapping lease. */
  TL_ACK_WAIT_MS: milliseconds(30_000, { min: 500 }),
  /** A queued run whose agent nobody offers fails after this. */
  TL_QUEUE_TIMEOUT_MS: milliseconds(600_000, { min: 100 }),
  /** How long steps may take to end in a shutdown. */
  TL_DRAIN_MS: milliseconds(10_000),
  /** Where `git` is looked for. */
  PATH: z.string().default("/usr/local/bin:/usr/bin:/bin"),

  /** The model of the agent `llm`, which is offered when this and one of the next two are set. */
  OPENAI_MODEL: optionalText(),
  /** An OpenAI-compatible API: what comes before `/chat/completions`. */
  OPENAI_BASE_URL: z
    .string()
    .refine(isPlainUrl, { error: "must be an http or https URL without credentials or query" })
    .optional(),
  /** Servers of one's own may need none. */
  OPENAI_API_KEY: optionalText(),
  /** A file that holds the key, instead of the key itself. */
  OPENAI_API_KEY_FILE: optionalText(),
  /** Answers of the model in one run: when it has still not come to an end, the run fails. */
  TL_LLM_MAX_ROUNDS: wholeNumber(25, { min: 1, max: 1_000 }),
  /** Further tries of an answer that failed for a reason that may pass (rate limit, cut stream, …). */
  TL_LLM_RETRIES: wholeNumber(4, { max: 100 }),
  /** The wait before the first of them, doubled each time, where the provider does not say how long. */
  TL_LLM_BACKOFF_MS: milliseconds(1_000, { min: 1 }),
  /** How long a provider may say nothing. The HTTP client itself gives up after 300 s. */
  TL_LLM_IDLE_MS: milliseconds(120_000, { min: 100, max: 290_000 }),
  /** The folder that the tool `shell` of `llm` begins in. Without it there is no such tool. */
  TL_SHELL_ROOT: optionalText(),
  TL_SHELL_TIMEOUT_MS: milliseconds(120_000, { min: 100 }),
});

const OPENAI = "https://api.openai.com/v1";

/** What the agent `llm` talks to. */
export interface ModelEndpoint {
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  readonly model: string;
}

export interface RuntimeConfig extends Omit<z.output<typeof schema>, `OPENAI_${string}`> {
  /** Undefined: `llm` is not offered. */
  readonly endpoint: ModelEndpoint | undefined;
}

/** @throws {ConfigError} naming every variable that is wrong */
export function readConfig(env: Readonly<Record<string, string | undefined>>): RuntimeConfig {
  const { OPENAI_MODEL, OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_API_KEY_FILE, ...config } =
    loadConfig(schema, env);
  const apiKey = readKey(OPENAI_API_KEY, OPENAI_API_KEY_FILE);
  if (OPENAI_MODEL === undefined || (OPENAI_BASE_URL === undefined && apiKey === undefined))
    return { ...config, endpoint: undefined };
  const endpoint = { baseUrl: OPENAI_BASE_URL ?? OPENAI, apiKey, model: OPENAI_MODEL };
  return { ...config, endpoint };
}

function readKey(key: string | undefined, file: string | undefined): string | undefined {
  if (file === undefined) return key;
  const wrong = (message: string): ConfigError =>
    new ConfigError([{ name: "OPENAI_API_KEY_FILE", message }]);
  if (key !== undefined) throw wrong("is set beside OPENAI_API_KEY: only one can hold");
  let text: string;
  try {
    text = readFileSync(file, "utf8").trim();
  } catch (error) {
    throw wrong(`can't be read (${errorCode(error) ?? "unknown reason"})`);
  }
  if (text === "") throw wrong("is empty");
  return text;
}

function isPlainUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !["http:", "https:"].includes(url.protocol)) return false;
  return url.username === "" && url.password === "" && url.search === "" && url.hash === "";
}
