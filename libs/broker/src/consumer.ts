import {
  AckPolicy,
  type ConsumerConfig,
  DeliverPolicy,
  JetStreamApiError,
  type JetStreamManager,
  ReplayPolicy,
} from "@nats-io/jetstream";
import { nanos } from "@nats-io/nats-core";
import { BrokerMisfit } from "./errors.ts";

const CONSUMER_NOT_FOUND = 10014;
/** Another process made it between our look and our create. */
const ALREADY_THERE = new Set([10013, 10105, 10148]);

export interface JobConsumer {
  readonly stream: string;
  readonly name: string;
  /** Within one shard only: a filter across shards is accepted by NATS and never delivers the others'. */
  readonly filter: string;
  readonly ackWaitMs: number;
}

/**
 * Jobs in flight per consumer. NATS's default of 1,000 would be a ceiling on the active runs
 * of an agent kind; a job in flight costs the server ~100 bytes.
 */
const MAX_ACK_PENDING = 100_000;
/** Open pulls per consumer, that is, workers of one agent kind (NATS's default is 512). */
const MAX_WAITING = 4_096;

/** What every job consumer is made with. Redelivery is the failover, so it is never given up. */
export function jobConsumerConfig(job: JobConsumer): ConsumerConfig {
  return {
    durable_name: job.name,
    filter_subject: job.filter,
    ack_policy: AckPolicy.Explicit,
    deliver_policy: DeliverPolicy.All,
    replay_policy: ReplayPolicy.Instant,
    ack_wait: nanos(job.ackWaitMs),
    max_deliver: -1,
    max_ack_pending: MAX_ACK_PENDING,
    max_waiting: MAX_WAITING,
    // Explicitly none: with it, ack_wait would not be what redelivers.
    backoff: [],
  };
}

/** Settings that NATS refuses to change, and whether we can live with another value. */
const FIXED = {
  ack_policy: "needed",
  deliver_policy: "needed",
  replay_policy: "needed",
  max_waiting: "wanted",
} as const;

export interface ConsumerDifference {
  readonly setting: keyof ConsumerConfig;
  readonly have: unknown;
  readonly want: unknown;
  readonly kind: "changeable" | "wanted" | "needed";
}

/** Pure: where an existing consumer differs from what we would have made. */
export function differences(have: ConsumerConfig, want: ConsumerConfig): ConsumerDifference[] {
  const found: ConsumerDifference[] = [];
  for (const setting of Object.keys(want) as (keyof ConsumerConfig)[]) {
    const [a, b] = [have[setting], want[setting]];
    const same = setting === "backoff" ? (have.backoff ?? []).length === 0 : a === b;
    if (same) continue;
    const kind = setting in FIXED ? FIXED[setting as keyof typeof FIXED] : "changeable";
    found.push({ setting, have: a, want: b, kind });
  }
  return found;
}

const describe = (d: ConsumerDifference): string =>
  `${d.setting} is ${JSON.stringify(d.have)}, ${JSON.stringify(d.want)} is wanted`;

/**
 * Makes the consumer, or brings an existing one (older version, other options) to what is
 * wanted; safe from many processes at once. Returns what had to stay as it was, in words.
 * Rejects with BrokerMisfit where nothing but deleting it helps.
 */
export async function ensureJobConsumer(
  jsm: JetStreamManager,
  job: JobConsumer,
): Promise<string | undefined> {
  const want = jobConsumerConfig(job);
  const have = await existing(jsm, job);
  if (!have) {
    try {
      await jsm.consumers.add(job.stream, want);
      return undefined;
    } catch (error) {
      if (!(error instanceof JetStreamApiError) || !ALREADY_THERE.has(error.code)) throw error;
      return ensureJobConsumer(jsm, job);
    }
  }
  const differs = differences(have, want);
  const needed = differs.filter((d) => d.kind === "needed");
  if (needed.length > 0) {
    throw new BrokerMisfit(
      `consumer ${job.name} of ${job.stream} cannot serve: ${needed.map(describe).join("; ")}. ` +
        `NATS does not change that: delete it (nats consumer rm ${job.stream} ${job.name}) and it is made anew.`,
    );
  }
  if (differs.some((d) => d.kind === "changeable")) {
    // Only what NATS takes: naming a fixed setting refuses the whole update (10148).
    const { max_waiting: _fixed, ...changes } = want;
    await jsm.consumers.update(job.stream, job.name, changes);
  }
  const kept = differs.filter((d) => d.kind === "wanted");
  if (kept.length === 0) return undefined;
  return `consumer ${job.name} of ${job.stream} keeps a setting: ${kept.map(describe).join("; ")}`;
}

async function existing(
  jsm: JetStreamManager,
  job: JobConsumer,
): Promise<ConsumerConfig | undefined> {
  try {
    return (await jsm.consumers.info(job.stream, job.name)).config;
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === CONSUMER_NOT_FOUND) return undefined;
    throw error;
  }
}
