/** One JSON object a line on stdout, with credentials taken out. */
import { type DestinationStream, type Logger, pino } from "pino";
import type { LogLevel } from "./settings.ts";

export type { Logger } from "pino";

export interface LoggerOptions {
  service: string;
  node: string;
  level?: LogLevel;
  /** For tests; stdout otherwise. */
  destination?: DestinationStream;
}

const CENSOR = "[redacted]";
const SECRET_FIELDS = [
  "authorization",
  "cookie",
  "token",
  "ticket",
  "password",
  "secret",
  "sec-websocket-protocol",
];

// Credentials also come inside of texts: a request's URL, an error that quotes a header. Whatever the
// field, they do not leave the process.
const SECRET_TEXTS = [
  /(Bearer\s+|bearer\.|[?&](?:token|ticket|access_token)=)[^\s"&,\\]+/gi,
  /(:\/\/[^\s/:@"]*:)[^\s/:@"\\]+(?=@)/g,
];

/**
 * Written in the background: a reader of stdout that stands still must not stop the process. With a
 * `minLength` of 0, the default, `flush` does not wait for what is being written (sonic-boom 4).
 */
export function createLogger({
  service,
  node,
  level = "info",
  destination,
}: LoggerOptions): Logger {
  const options = {
    level,
    base: { service, node },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: SECRET_FIELDS.flatMap(atAnyDepth), censor: CENSOR },
    hooks: { streamWrite: redactText },
  };
  return pino(options, destination ?? pino.destination({ dest: 1, minLength: 1 }));
}

/** Takes credentials out of a text: bearer tokens, tokens and tickets in URLs, passwords in server URLs. */
export function redactText(text: string): string {
  return SECRET_TEXTS.reduce((rest, pattern) => rest.replace(pattern, `$1${CENSOR}`), text);
}

/** pino has no wildcard for "any depth"; three levels cover what is logged. */
function atAnyDepth(field: string): string[] {
  const key = `["${field}"]`;
  return [key, `*${key}`, `*.*${key}`];
}
