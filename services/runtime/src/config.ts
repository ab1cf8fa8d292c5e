import {
  list,
  loadConfig,
  milliseconds,
  sharedSettings,
  wholeNumber,
} from "@throughline/service-kit";
import { z } from "zod";

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
});

export type RuntimeConfig = z.output<typeof schema>;

/** @throws {ConfigError} naming every variable that is wrong */
export function readConfig(env: Readonly<Record<string, string | undefined>>): RuntimeConfig {
  return loadConfig(schema, env);
}
