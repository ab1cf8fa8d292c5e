/**
 * The kinds of settings that a service reads from its environment, and those that all services share.
 *
 * Each has its default here and nowhere else: compose files and charts set only what differs.
 */
import { randomInt } from "node:crypto";
import { hostname } from "node:os";
import { z } from "zod";

/** Reads one variable; `undefined` is "not set". */
export type Setting<T> = z.ZodType<T, string | undefined>;

const DAY_MS = 24 * 60 * 60 * 1000;

export function text(fallback: string): Setting<string> {
  return z.string().default(fallback);
}

/** A setting that may be missing. */
export function optionalText(): Setting<string | undefined> {
  return z.string().optional();
}

export interface Range {
  min?: number;
  max?: number;
}

/** A whole number, written in digits only: `1e3`, `0x10` and ` 5` are mistakes. */
export function wholeNumber(
  fallback: number,
  { min = 0, max = Number.MAX_SAFE_INTEGER }: Range = {},
): Setting<number> {
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  return z
    .string()
    .default(`${fallback}`)
    .refine((value) => /^\d+$/.test(value) && Number(value) >= min && Number(value) <= max, {
      error: `must be a whole number ${range}`,
    })
    .transform(Number);
}

/** A TCP port; 0 lets the system choose. */
export function port(fallback: number): Setting<number> {
  return wholeNumber(fallback, { max: 65_535 });
}

/** A TCP port that may be missing. */
export function optionalPort(): Setting<number | undefined> {
  return z
    .string()
    .refine((value) => /^\d+$/.test(value) && Number(value) <= 65_535, {
      error: "must be a whole number from 0 to 65535",
    })
    .transform(Number)
    .optional();
}

/** A span of time in milliseconds. */
export function milliseconds(fallback: number, range: Range = {}): Setting<number> {
  return wholeNumber(fallback, range);
}

/** On or off: `1`, `true`, `0`, `false`. */
export function flag(fallback: boolean): Setting<boolean> {
  return z
    .enum(["1", "true", "0", "false"], { error: "must be 1 or 0 (or true or false)" })
    .default(fallback ? "1" : "0")
    .transform((value) => value === "1" || value === "true");
}

/** Parts between separators; empty parts do not count. */
export function list(separator: string, fallback: readonly string[] = []): Setting<string[]> {
  return z
    .string()
    .default(fallback.join(separator))
    .transform((value) =>
      value
        .split(separator)
        .map((part) => part.trim())
        .filter((part) => part !== ""),
    );
}

export function oneOf<const T extends string>(
  values: readonly T[],
  fallback: NoInfer<T>,
): Setting<T> {
  return z
    .string()
    .default(fallback)
    .refine((value) => (values as readonly string[]).includes(value), {
      error: `must be one of ${values.join(", ")}`,
    })
    .transform((value) => value as T);
}

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Spread into a service's own schema: `z.object({ ...sharedSettings, TL_PORT: port(8080) })`. */
export const sharedSettings: {
  TL_ADMIN_HOST: Setting<string>;
  TL_ADMIN_PORT: Setting<number>;
  TL_NATS_URL: Setting<string[]>;
  TL_REDIS_URL: Setting<string | undefined>;
  TL_NODE_ID: Setting<string>;
  TL_SHARDS: Setting<number>;
  TL_REPLICAS: Setting<number>;
  TL_EVENTS_MAX_AGE_MS: Setting<number>;
  TL_HISTORY_MAX_AGE_MS: Setting<number>;
  TL_DEADLINE_MS: Setting<number>;
  TL_ALLOW_SHORT_RETENTION: Setting<boolean>;
  TL_LOG_LEVEL: Setting<LogLevel>;
} = {
  TL_ADMIN_HOST: text("127.0.0.1"),
  TL_ADMIN_PORT: port(9081),
  /** Comma separated. */
  TL_NATS_URL: list(",", ["nats://127.0.0.1:4222"]),
  /** Without it limits are counted in each process. */
  TL_REDIS_URL: optionalText(),
  /** Names the process in `welcome`, metrics, logs and to other nodes: no two may have the same. */
  TL_NODE_ID: z
    .string()
    .default(ownName)
    .refine((value) => /^[A-Za-z0-9_-]{1,64}$/.test(value), {
      error: "must be 1 to 64 letters, digits, underscores or hyphens",
    }),
  /** Fixed at installation. */
  TL_SHARDS: wholeNumber(4, { min: 1, max: 1024 }),
  TL_REPLICAS: wholeNumber(1, { min: 1, max: 5 }),
  TL_EVENTS_MAX_AGE_MS: milliseconds(7 * DAY_MS, { min: 1000 }),
  /** Of snapshots, large values and the lists of runs; never shorter than events. */
  TL_HISTORY_MAX_AGE_MS: milliseconds(30 * DAY_MS, { min: 1000 }),
  TL_DEADLINE_MS: milliseconds(3 * DAY_MS, { min: 100 }),
  /** For tests: events may be kept for less than twice the deadline, so that a run outlives its job. */
  TL_ALLOW_SHORT_RETENTION: flag(false),
  TL_LOG_LEVEL: oneOf(LOG_LEVELS, "info"),
};

/** Of the machine, and of this process among others on it: several share a machine, or even a port. */
function ownName(): string {
  const machine = hostname()
    .replaceAll(/[^A-Za-z0-9_-]/g, "-")
    .slice(0, 33);
  return `${machine}-${randomInt(36 ** 5)
    .toString(36)
    .padStart(5, "0")}`;
}
