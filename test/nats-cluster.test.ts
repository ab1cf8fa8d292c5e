import { type Broker, openBroker } from "@throughline/broker";
import {
  type Edge,
  type NatsCluster,
  removeDir,
  type Service,
  startEdge,
  startNatsCluster,
  startRuntime,
  tempDir,
} from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BY_HAND } from "./hand-worker.ts";
import { type Frame, RawClient } from "./raw-client.ts";
import { events, readLog, TENANT } from "./world.ts";

/** How long all of NATS stays away; the soak run takes the time a rollout gone wrong takes. */
const AWAY_MS = process.env["SOAK"] ? 20_000 : 1_000;

let cluster: NatsCluster;
let broker: Broker;
let folder: string;
const services: Service[] = [];
let edges: Edge[];

beforeAll(async () => {
  folder = tempDir("cluster");
  writeFileSync(join(folder, "a.ts"), "export const a = 1; // TODO one\n".repeat(60));
  cluster = await startNatsCluster(3);
  broker = await openBroker({
    servers: cluster.urls,
    name: "test",
    shards: 1,
    replicas: 3,
    connectTimeoutMs: 60_000,
  });
  const common = { env: { TL_SHARDS: "1", TL_REPLICAS: "3" }, natsUrl: cluster.url };
  edges = await Promise.all([startEdge(common), startEdge(common)]);
  services.push(...edges);
  services.push(await startRuntime({ ...common, allowedRoots: [folder], ackWaitMs: 10_000 }));
}, 120_000);
afterAll(async () => {
  await Promise.all(services.map((s) => s.dispose()));
  await broker.close();
  await cluster.dispose();
  removeDir(folder);
});

async function startMany(
  count: number,
): Promise<{ client: RawClient; session: string; run: string }[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const starter = await RawClient.connect(edges[i % 2]!.connectUrl);
      const session = await starter.createSession();
      const run = await starter.start(session, "repo-report", { path: folder, pace_ms: 40 });
      starter.close();
      const client = await RawClient.connect(edges[(i + 1) % 2]!.connectUrl);
      await client.subscribe(session, i % 4 < 2 ? run : undefined);
      return { client, session, run };
    }),
  );
}

async function verify(follow: { client: RawClient; session: string; run: string }): Promise<void> {
  const { client, session, run } = follow;
  await client.terminal(run, 90_000);
  const log = (await readLog(broker, { tenant: TENANT, session, run })).flatMap(events);
  expect(log.map((e) => e.seq)).toEqual(log.map((_, i) => i + 1));
  expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
  expect(log.at(-1)?.type).toBe("run.completed");
  client.close();
}

/** Sessions that one node has just made and another is asked for; so many at a time. */
const FRESH_SESSIONS = 300;
const LANES = 6;

/** Follows a session and starts a run in it at once; what was refused. */
async function useElsewhere(session: string, client: RawClient): Promise<Frame[]> {
  const [subscribed, started] = await Promise.all([
    client.subscribe(session),
    client.ask({
      type: "run.start",
      session_id: session,
      payload: { agent: BY_HAND, input: null },
    }),
  ]);
  const refused = [subscribed, started].filter(
    ({ type }) => type !== "subscribed" && type !== "command.accepted",
  );
  if (refused.length === 0)
    await client.frame((frame) => frame.run_id === started.run_id && frame.seq === 1);
  client.send({
    type: "unsubscribe",
    payload: { subscription_id: subscribed.subscription_id },
  });
  return refused;
}

describe("on a 3-node cluster", () => {
  test("a session made on one node can be followed and started in on another at once: no refusal in 300", async () => {
    const refused: Frame[] = [];
    const lane = async (): Promise<void> => {
      const [one, two] = await Promise.all(
        edges.map(({ connectUrl }) => RawClient.connect(connectUrl)),
      );
      if (one === undefined || two === undefined) throw new Error("two edges");
      for (let n = 0; n < FRESH_SESSIONS / LANES; n += 1)
        refused.push(...(await useElsewhere(await one.createSession(), two)));
      one.close();
      two.close();
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    expect(refused).toEqual([]);
  }, 60_000);

  test("[INV2] [C12] the stream leader is killed in mid-run: nothing lost, doubled or out of order", async () => {
    const follows = await startMany(8);
    await Promise.all(
      follows.map(({ client, run }) => client.frame((f) => f.run_id === run && (f.seq ?? 0) > 4)),
    );
    const leader = await cluster.streamLeader("TL_EV_0");
    await leader.kill();
    for (const follow of follows) await verify(follow);
    await leader.restart();
    await cluster.settled();
  }, 150_000);

  test("[INV2] all of NATS is stopped and started again: all clients complete", async () => {
    const follows = await startMany(8);
    await Promise.all(
      follows.map(({ client, run }) => client.frame((f) => f.run_id === run && (f.seq ?? 0) > 4)),
    );
    await Promise.all(cluster.nodes.map((node) => node.kill()));
    await new Promise((resolve) => setTimeout(resolve, AWAY_MS));
    await Promise.all(cluster.nodes.map((node) => node.restart()));
    for (const follow of follows) await verify(follow);
  }, 150_000);
});
