import type { Broker } from "./broker.ts";
import { BrokerMisfit } from "./errors.ts";
import { streamName } from "./subjects.ts";

export interface RetentionOptions {
  /** Longest life of a run, in ms. */
  readonly deadlineMs: number;
  /** For tests: a run whose job has expired cannot be taken over any more. */
  readonly allowShortRetention?: boolean;
}

/**
 * Refuses event streams that keep events for less than twice the deadline: a run's job and
 * its last event's sequence must outlast the run, or redelivery and fence end before it does.
 * Rejects with BrokerMisfit.
 */
export async function checkRetention(
  broker: Pick<Broker, "jsm" | "shards">,
  options: RetentionOptions,
): Promise<void> {
  if (options.allowShortRetention ?? false) return;
  for (let shard = 0; shard < broker.shards; shard += 1) {
    const name = streamName.events(shard);
    const { config } = await broker.jsm.streams.info(name);
    const problem = retentionProblem(config.max_age / 1_000_000, options.deadlineMs);
    if (problem !== undefined) throw new BrokerMisfit(`${name}: ${problem}`);
  }
}

/** Pure: what is wrong with keeping events for `maxAgeMs` (0: for ever); undefined when nothing is. */
export function retentionProblem(maxAgeMs: number, deadlineMs: number): string | undefined {
  if (maxAgeMs === 0 || maxAgeMs >= 2 * deadlineMs) return undefined;
  return (
    `events are kept for ${maxAgeMs} ms, runs may take ${deadlineMs} ms: keep them for at least ` +
    `${2 * deadlineMs} ms (TL_EVENTS_MAX_AGE_MS) or shorten the deadline (TL_DEADLINE_MS)`
  );
}

const HOUR_MS = 60 * 60_000;

/**
 * An object younger than this serves a put of the same bytes. The stream keeps objects for that
 * much longer than is promised, so that what the last put was told holds too.
 */
export function objectReuseMs(historyMaxAgeMs: number): number {
  return Math.min(HOUR_MS, Math.ceil(historyMaxAgeMs / 10));
}
