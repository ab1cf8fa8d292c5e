import type { DurableEvent } from "@throughline/protocol";
import { type Broker, type LogMessage, openBroker, type RunRef } from "@throughline/broker";
import {
  type Edge,
  type EdgeOptions,
  type NatsServer,
  type RuntimeOptions,
  type Service,
  startEdge,
  removeDir,
  startNats,
  startRuntime,
  startScript,
  tempDir,
} from "@throughline/testkit";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const TENANT = "acme";
export const SHARDS = 2;

export interface WorkerOptions {
  /** Names under which it offers the agent of agents/scripted.mjs (that name alone). */
  agents?: readonly string[];
  /** Runs at a time (100). */
  capacity?: number;
  /** How long it may be silent before its runs go to another (1,000). */
  ackWaitMs?: number;
  /** Another way to NATS, e.g. through a proxy. */
  natsUrl?: string;
}

/** Real processes on one real NATS, and a look into the log past the edges. */
export interface World {
  readonly nats: NatsServer;
  readonly broker: Broker;
  edge(options?: Partial<EdgeOptions>): Promise<Edge>;
  runtime(options?: Partial<RuntimeOptions>): Promise<Service>;
  /** A worker process of agents/main.mjs. */
  worker(options?: WorkerOptions): Promise<Service>;
  /** What the scripted agent's steps and tools did to the world outside, a line each, in order. */
  effects(): string[];
  /** What is stored of a run, by the leader's word. */
  log(session: string, run: string): Promise<DurableEvent[]>;
  dispose(): Promise<void>;
}

/** @param env TL_* variables that all its processes get */
export async function startWorld(env: Record<string, string> = {}): Promise<World> {
  const nats = await startNats();
  const { url } = nats;
  const services: Service[] = [];
  const folder = tempDir("world");
  const effects = join(folder, "effects");
  const common = { natsUrl: url, env: { TL_SHARDS: `${SHARDS}`, ...env } };
  const broker = await openBroker({
    servers: [url],
    name: "test",
    shards: SHARDS,
    ...(env["TL_EVENTS_MAX_AGE_MS"] ? { eventsMaxAgeMs: Number(env["TL_EVENTS_MAX_AGE_MS"]) } : {}),
  });
  return {
    nats,
    broker,
    edge: async (options = {}) => {
      const edge = await startEdge({
        ...common,
        ...options,
        env: { ...common.env, ...options.env },
      });
      services.push(edge);
      return edge;
    },
    runtime: async (options = {}) => {
      const runtime = await startRuntime({
        ...common,
        ...options,
        env: { ...common.env, ...options.env },
      });
      services.push(runtime);
      return runtime;
    },
    worker: async (options = {}) => {
      const worker = await startWorker({ ...common, effects }, options);
      services.push(worker);
      return worker;
    },
    effects: () => (existsSync(effects) ? readFileSync(effects, "utf8").split("\n") : []),
    log: async (session, run) =>
      (await readLog(broker, { tenant: TENANT, session, run })).flatMap(events),
    dispose: async () => {
      await Promise.all(services.map((service) => service.dispose()));
      await broker.close();
      await nats.dispose();
      removeDir(folder);
    },
  };
}

const WORKER = fileURLToPath(new URL("agents/main.mjs", import.meta.url));

/** @param on.effects the file that all workers of a world write their effects to */
function startWorker(
  on: { readonly natsUrl: string; readonly env: Record<string, string>; readonly effects: string },
  { agents = ["scripted"], capacity = 100, ackWaitMs = 1_000, natsUrl }: WorkerOptions,
): Promise<Service> {
  return startScript({
    file: WORKER,
    natsUrl: natsUrl ?? on.natsUrl,
    env: {
      ...on.env,
      TL_EFFECTS: on.effects,
      TL_AGENTS: agents.join(","),
      TL_CAPACITY: `${capacity}`,
      TL_ACK_WAIT_MS: `${ackWaitMs}`,
    },
  });
}

export async function readLog(broker: Broker, ref: RunRef): Promise<LogMessage[]> {
  const head = await broker.events.head(ref);
  const messages: LogMessage[] = [];
  for (;;) {
    const after = messages.at(-1)?.streamSeq ?? 0;
    const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo: head.streamSeq });
    messages.push(...page.messages);
    if (page.end) return messages;
  }
}

export function events(message: LogMessage): DurableEvent[] {
  return Buffer.from(message.body)
    .toString("utf8")
    .split("\n")
    .map((line): DurableEvent => JSON.parse(line));
}
