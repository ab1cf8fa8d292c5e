import type { DurableEvent } from "@throughline/protocol";
import { type Broker, type LogMessage, openBroker, type RunRef } from "@throughline/broker";
import {
  type Edge,
  type EdgeOptions,
  type NatsServer,
  type RuntimeOptions,
  type Service,
  startEdge,
  startNats,
  startRuntime,
} from "@throughline/testkit";

export const TENANT = "acme";
export const SHARDS = 2;

/** Real processes on one real NATS, and a look into the log past the edges. */
export interface World {
  readonly nats: NatsServer;
  readonly broker: Broker;
  edge(options?: Partial<EdgeOptions>): Promise<Edge>;
  runtime(options?: Partial<RuntimeOptions>): Promise<Service>;
  /** What is stored of a run, by the leader's word. */
  log(session: string, run: string): Promise<DurableEvent[]>;
  dispose(): Promise<void>;
}

/** @param env TL_* variables that all its processes get */
export async function startWorld(env: Record<string, string> = {}): Promise<World> {
  const nats = await startNats();
  const { url } = nats;
  const services: Service[] = [];
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
    log: async (session, run) =>
      (await readLog(broker, { tenant: TENANT, session, run })).flatMap(events),
    dispose: async () => {
      await Promise.all(services.map((service) => service.dispose()));
      await broker.close();
      await nats.dispose();
    },
  };
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
