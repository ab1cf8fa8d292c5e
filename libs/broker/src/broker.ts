import {
  jetstream,
  type JetStreamClient,
  jetstreamManager,
  type JetStreamManager,
} from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/nats-core";
import { CommandLog } from "./command-log.ts";
import { connectNats, type ConnectionState, type NatsAuth } from "./connect.ts";
import { DirectReader } from "./direct-read.ts";
import { BrokerUnavailable } from "./errors.ts";
import { EventLog } from "./event-log.ts";
import { PositionChecks } from "./position-checks.ts";
import { ObjectStore } from "./object-store.ts";
import { RunIndex } from "./run-index.ts";
import { SessionIndex } from "./session-index.ts";
import { SessionStore } from "./session-store.ts";
import { SnapshotStore } from "./snapshot-store.ts";
import { ensureStreams, type Layout } from "./streams.ts";
import { shardOf, streamName } from "./subjects.ts";

export interface BrokerOptions {
  /** `host:port` or `nats://…`, any number of servers of one cluster. */
  readonly servers: readonly string[];
  readonly name: string;
  readonly auth?: NatsAuth;
  /** Fixed at installation (default 4). */
  readonly shards?: number;
  /** Copies of each stream: 1, 3 or 5 (default 1). */
  readonly replicas?: number;
  /** Default 7 days. */
  readonly eventsMaxAgeMs?: number;
  /** Of snapshots, objects and the index of runs: what later runs of a session know. Default 30 days, never under the events'. */
  readonly historyMaxAgeMs?: number;
  readonly storage?: "file" | "memory";
  /** Make missing streams (default true). An edge without the right to may wait for a worker to do it. */
  readonly ensure?: boolean;
  /**
   * Bring existing streams to these ages and replicas (default false). For one kind of process
   * only: two with different settings would undo each other's.
   */
  readonly adjust?: boolean;
  readonly connectTimeoutMs?: number;
}

const DAY_MS = 24 * 60 * 60_000;

/** What all parts of this room stand on: the connection, the layout, and the logs over them. */
export class Broker {
  readonly nc: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly shards: number;
  readonly replicas: number;
  readonly eventsMaxAgeMs: number;
  readonly historyMaxAgeMs: number;
  readonly reader: DirectReader;
  readonly checks: PositionChecks;
  readonly events: EventLog;
  readonly commands: CommandLog;
  readonly sessions: SessionStore;
  readonly snapshots: SnapshotStore;
  readonly objects: ObjectStore;
  readonly runs: RunIndex;
  readonly sessionIndex: SessionIndex;
  readonly #watchers: Set<(state: ConnectionState) => void> = new Set();
  #connection: ConnectionState = "up";

  constructor(nc: NatsConnection, jsm: JetStreamManager, layout: Layout) {
    this.nc = nc;
    this.jsm = jsm;
    this.js = jetstream(nc);
    this.shards = layout.shards;
    this.replicas = layout.replicas;
    this.eventsMaxAgeMs = layout.eventsMaxAgeMs;
    this.historyMaxAgeMs = layout.historyMaxAgeMs;
    this.reader = new DirectReader(nc);
    this.checks = new PositionChecks(this);
    this.events = new EventLog(this);
    this.commands = new CommandLog(this);
    this.sessions = new SessionStore(this);
    this.objects = new ObjectStore(this);
    this.snapshots = new SnapshotStore(this);
    this.runs = new RunIndex(this);
    this.sessionIndex = new SessionIndex(this);
  }

  get connection(): ConnectionState {
    return this.#connection;
  }

  /** Called on every change of the NATS connection; returns the way to stop. */
  onConnection(watcher: (state: ConnectionState) => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  shardOf(session: string): number {
    return shardOf(session, this.shards);
  }

  /** Throws BrokerUnavailable while NATS is away: a request would only run into its time-out. */
  assertUp(): void {
    if (this.#connection === "down") throw new BrokerUnavailable("NATS is not connected");
  }

  /** @internal */
  connectionChanged(state: ConnectionState): void {
    if (this.#connection === state) return;
    this.#connection = state;
    if (state === "down") this.reader.away("the NATS connection was lost");
    else {
      this.reader.back();
      this.checks.allDue();
    }
    for (const watcher of this.#watchers) watcher(state);
  }

  async close(): Promise<void> {
    this.checks.close();
    this.reader.close();
    await this.nc.close();
  }
}

/**
 * Connects, checks the server's version and makes the streams that are missing.
 * Rejects with BrokerUnavailable (nobody answers in time) or BrokerMisfit (fatal, says what to do).
 */
export async function openBroker(options: BrokerOptions): Promise<Broker> {
  const layout: Layout = {
    shards: options.shards ?? 4,
    replicas: options.replicas ?? 1,
    eventsMaxAgeMs: options.eventsMaxAgeMs ?? 7 * DAY_MS,
    historyMaxAgeMs: Math.max(
      options.historyMaxAgeMs ?? 30 * DAY_MS,
      options.eventsMaxAgeMs ?? 7 * DAY_MS,
    ),
    storage: options.storage ?? "file",
    adjust: options.adjust ?? false,
  };
  let broker: Broker | undefined;
  const nc = await connectNats({
    servers: options.servers,
    name: options.name,
    ...(options.auth ? { auth: options.auth } : {}),
    ...(options.connectTimeoutMs === undefined
      ? {}
      : { connectTimeoutMs: options.connectTimeoutMs }),
    onChange: (state) => broker?.connectionChanged(state),
  });
  try {
    const jsm = await settle(nc, layout, options);
    broker = new Broker(nc, jsm, layout);
    return broker;
  } catch (error) {
    await nc.close();
    throw error;
  }
}

/** A cluster that has just started has no leader for a while: try until the time is over. */
async function settle(
  nc: NatsConnection,
  layout: Layout,
  options: BrokerOptions,
): Promise<JetStreamManager> {
  const giveUpAt = Date.now() + (options.connectTimeoutMs ?? 30_000);
  for (;;) {
    try {
      const jsm = await jetstreamManager(nc, { timeout: 5_000 });
      if (options.ensure ?? true) await ensureStreams(nc, jsm, layout);
      else await jsm.streams.info(streamName.objects(layout.shards - 1));
      return jsm;
    } catch (error) {
      if (isFatal(error)) throw error;
      if (Date.now() >= giveUpAt) {
        throw new BrokerUnavailable(
          "JetStream did not become ready: is it enabled (nats-server -js)?",
          {
            cause: error,
          },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

function isFatal(error: unknown): boolean {
  return error instanceof Error && error.name === "BrokerMisfit";
}
