/** What the tests with sockets have in common: a log, nodes on it, clients, and their end. */
import { afterEach } from "vitest";
import { WebSocket } from "ws";
import { type Client, type ClientOptions, type FollowItem, createClient } from "../src/index.ts";
import { type DoubleOptions, EdgeDouble, Log } from "./edge-double.ts";

export interface Stage {
  readonly log: Log;
  readonly edges: EdgeDouble[];
  readonly edge: EdgeDouble;
  /** Of all edges, reconnecting within milliseconds. */
  readonly client: (options?: Partial<ClientOptions>) => Client;
}

const edges: EdgeDouble[] = [];
const clients: Client[] = [];

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await Promise.all(edges.splice(0).map((edge) => edge.kill()));
});

export async function stage(nodes = 1, options: DoubleOptions = {}): Promise<Stage> {
  const log = new Log();
  const own = await Promise.all(
    Array.from({ length: nodes }, () => new EdgeDouble(log, options).listen()),
  );
  edges.push(...own);
  const [edge] = own;
  if (edge === undefined) throw new Error("a stage needs a node");
  return {
    log,
    edges: own,
    edge,
    client(given = {}) {
      const client = createClient({
        urls: own.map(({ url }) => url),
        token: "dev.acme.ann",
        webSocket: WebSocket,
        reconnect: { baseMs: 4, capMs: 20 },
        ...given,
      });
      clients.push(client);
      return client;
    },
  };
}

/** The durable events of an iteration, until it ends or there are `count`. */
export async function take(
  source: AsyncIterable<FollowItem>,
  count: number = Number.POSITIVE_INFINITY,
): Promise<FollowItem[]> {
  const items: FollowItem[] = [];
  for await (const item of source) {
    items.push(item);
    if (items.length >= count) break;
  }
  return items;
}

/** `run.seq` of events, the type of all else. */
export function names(items: readonly FollowItem[]): string[] {
  return items.map((item) => ("seq" in item ? `${item.run_id}.${item.seq}` : item.type));
}
