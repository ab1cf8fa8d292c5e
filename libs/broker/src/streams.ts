import {
  DiscardPolicy,
  JetStreamApiError,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { nanos, type NatsConnection } from "@nats-io/nats-core";
import { BrokerMisfit } from "./errors.ts";
import { objectReuseMs } from "./retention.ts";
import { RUNS_BUCKET } from "./run-index.ts";
import { USER_SESSIONS_BUCKET } from "./session-index.ts";
import { SESSIONS_BUCKET } from "./session-store.ts";
import { streamName } from "./subjects.ts";

export interface Layout {
  readonly shards: number;
  readonly replicas: number;
  readonly eventsMaxAgeMs: number;
  /** Snapshots, objects and the index of runs outlive the events. */
  readonly historyMaxAgeMs: number;
  readonly storage: "file" | "memory";
  /** Bring existing streams to these ages and replicas. */
  readonly adjust: boolean;
}

const META_BUCKET = "TL_META";
const LAYOUT_KEY = "layout";
const STREAM_NOT_FOUND = 10059;

/** How long NATS remembers a command's Msg-Id. Past it, the ids kept in the run's state tell a duplicate. */
const COMMAND_DUPLICATE_WINDOW_MS = 2 * 60_000;

function wanted(layout: Layout, shard: number): Partial<StreamConfig>[] {
  const common: Partial<StreamConfig> = {
    retention: RetentionPolicy.Limits,
    storage: layout.storage === "file" ? StorageType.File : StorageType.Memory,
    num_replicas: layout.replicas,
    allow_direct: true,
    discard: DiscardPolicy.Old,
  };
  const logs = { ...common, max_age: nanos(layout.eventsMaxAgeMs) };
  const window = nanos(Math.min(COMMAND_DUPLICATE_WINDOW_MS, layout.eventsMaxAgeMs));
  return [
    {
      ...logs,
      name: streamName.events(shard),
      subjects: [`tl.ev.${shard}.>`],
      republish: { src: `tl.ev.${shard}.>`, dest: `tl.lv.${shard}.>` },
      duplicate_window: window,
    },
    {
      ...logs,
      name: streamName.commands(shard),
      subjects: [`tl.cm.${shard}.>`],
      republish: { src: `tl.cm.${shard}.>`, dest: `tl.cl.${shard}.>` },
      duplicate_window: window,
    },
    {
      ...common,
      name: streamName.snapshots(shard),
      subjects: [`tl.sn.${shard}.>`],
      max_msgs_per_subject: 1,
      max_age: nanos(layout.historyMaxAgeMs),
      duplicate_window: window,
    },
    {
      ...common,
      name: streamName.objects(shard),
      subjects: [`tl.ob.${shard}.>`],
      max_age: nanos(layout.historyMaxAgeMs + objectReuseMs(layout.historyMaxAgeMs)),
      duplicate_window: window,
    },
  ];
}

/** The shard count is fixed at installation: another count would look for sessions where they are not. */
async function settleShards(nc: NatsConnection, layout: Layout): Promise<void> {
  const kv = await new Kvm(nc).create(META_BUCKET, {
    replicas: layout.replicas,
    history: 1,
    storage: layout.storage === "file" ? StorageType.File : StorageType.Memory,
  });
  const mine = { version: 1, shards: layout.shards };
  try {
    await kv.create(LAYOUT_KEY, JSON.stringify(mine));
    return;
  } catch (error) {
    if (!isWrongSequence(error)) throw error;
  }
  const entry = await kv.get(LAYOUT_KEY);
  const stored: unknown = entry?.json();
  const shards =
    typeof stored === "object" && stored !== null && "shards" in stored ? stored.shards : undefined;
  if (shards !== layout.shards) {
    throw new BrokerMisfit(
      `this installation has ${String(shards)} shards, ${layout.shards} were asked for. ` +
        "The count is fixed when the streams are first made: set TL_SHARDS back, or install afresh.",
    );
  }
}

function isWrongSequence(error: unknown): boolean {
  return error instanceof JetStreamApiError && error.code === 10071;
}

async function ensureStream(
  jsm: JetStreamManager,
  config: Partial<StreamConfig>,
  adjust: boolean,
): Promise<void> {
  const name = config.name ?? "";
  try {
    const { config: have } = await jsm.streams.info(name);
    if (!adjust) return;
    const same =
      have.max_age === config.max_age &&
      have.num_replicas === config.num_replicas &&
      have.republish?.dest === config.republish?.dest;
    if (!same) await jsm.streams.update(name, config);
  } catch (error) {
    if (!(error instanceof JetStreamApiError) || error.code !== STREAM_NOT_FOUND) throw error;
    await jsm.streams.add({ ...config, name });
  }
}

/** Without `ttlMs` its entries stay until they are removed. */
async function ensureBucket(
  nc: NatsConnection,
  jsm: JetStreamManager,
  layout: Layout,
  name: string,
  ttlMs = 0,
): Promise<void> {
  await new Kvm(nc).create(name, { replicas: layout.replicas, history: 1, ttl: ttlMs });
  if (!layout.adjust) return;
  const { config: have } = await jsm.streams.info(`KV_${name}`);
  const max_age = nanos(ttlMs);
  if (have.max_age === max_age && have.num_replicas === layout.replicas) return;
  const duplicate_window =
    max_age === 0 ? have.duplicate_window : Math.min(have.duplicate_window, max_age);
  const changed = { max_age, duplicate_window, num_replicas: layout.replicas };
  await jsm.streams.update(`KV_${name}`, changed);
}

/** Makes what is missing, and adjusts what is there if told to; safe to run from many processes at once. */
export async function ensureStreams(
  nc: NatsConnection,
  jsm: JetStreamManager,
  layout: Layout,
): Promise<void> {
  await settleShards(nc, layout);
  // With the streams, not at the first session: a bucket made on a cluster has no leader for a moment.
  await ensureBucket(nc, jsm, layout, SESSIONS_BUCKET);
  await ensureBucket(nc, jsm, layout, USER_SESSIONS_BUCKET);
  await ensureBucket(nc, jsm, layout, RUNS_BUCKET, layout.historyMaxAgeMs);
  for (let shard = 0; shard < layout.shards; shard += 1) {
    for (const config of wanted(layout, shard)) await ensureStream(jsm, config, layout.adjust);
  }
}
