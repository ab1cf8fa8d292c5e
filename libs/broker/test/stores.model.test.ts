import { randomBytes } from "node:crypto";
import {
  eventually,
  type NatsServer,
  seededRandom,
  startNats,
  type TcpProxy,
  tcpProxy,
} from "@throughline/testkit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Broker, openBroker, type RunEntry } from "../src/index.ts";
import { freshRun } from "./harness.ts";

let nats: NatsServer;
/** Three nodes, each behind a link of its own that is cut at times. */
let proxies: TcpProxy[];
let brokers: Broker[];

beforeAll(async () => {
  nats = await startNats();
  proxies = await Promise.all([1, 2, 3].map(() => tcpProxy({ port: nats.port })));
  brokers = await Promise.all(
    proxies.map((proxy, i) => openBroker({ servers: [proxy.address], name: `b${i}`, shards: 2 })),
  );
});
afterAll(async () => {
  await Promise.all(brokers.map((broker) => broker.close()));
  for (const proxy of proxies) proxy.close();
  await nats.dispose();
});

const STATUSES = ["queued", "running", "waiting_input", "completed"] as const;

test("[KEP1] [OBJ5] [LST2] [SES4] random writes through links that are cut: what stands is what was acknowledged", async () => {
  const random = seededRandom();
  const ref = freshRun();
  const made = { owner: "ann", members: {}, created_at: 1, command_hash: "h" };
  await brokers[0]?.sessions.create({ tenant: ref.tenant, session: ref.session, ...made });

  const furthest = new Map<string, number>();
  const members = new Set<string>();
  const sessions = new Set<string>();
  const objects = new Map<string, Uint8Array>();

  const putEntry = async (broker: Broker): Promise<void> => {
    const run = `run_${random.int(12)}`;
    const step = random.int(STATUSES.length);
    const status = STATUSES[step] ?? "queued";
    const entry: RunEntry = {
      tenant: ref.tenant,
      session: ref.session,
      run,
      agent: "echo",
      by: "ann",
      queued_at: Number(run.slice(4)),
      status,
      ...(status === "completed" ? { ended_at: 9 } : {}),
    };
    await broker.runs.put(entry);
    // Running and waiting come and go: of these two the later stands.
    const rank = [0, 1, 1, 2][step] ?? 0;
    furthest.set(run, Math.max(furthest.get(run) ?? 0, rank));
  };
  const addMember = async (broker: Broker, n: number): Promise<void> => {
    const user = `user ${n}`;
    await broker.sessions.update(ref, (held) => ({
      ...held,
      members: { ...held.members, [user]: "viewer" },
    }));
    members.add(user);
  };
  const addSession = async (broker: Broker, n: number): Promise<void> => {
    const session = `ses_${n}`;
    await broker.sessionIndex.add(ref.session, "ann", { session, created_at: n });
    sessions.add(session);
  };
  const putObject = async (broker: Broker): Promise<void> => {
    const bytes = randomBytes(random.pick([10, 100_000, 900_000]));
    const { $artifact } = await broker.objects.put(ref, bytes);
    objects.set($artifact, bytes);
  };

  const writes: Promise<void>[] = [];
  for (let n = 0; n < 400; n += 1) {
    const broker = random.pick(brokers);
    const act = random.pick([putEntry, putEntry, addMember, addSession, putObject]);
    writes.push(act(broker, n));
    if (random.chance(0.05)) random.pick(proxies).cut();
    // A few are under way at a time, as on a node.
    if (writes.length % 8 === 0) await Promise.race(writes.slice(-8));
    if (n === 200) await nats.restart();
  }
  await Promise.all(writes);
  await eventually(() => brokers.every((broker) => broker.connection === "up"));

  for (const broker of brokers) {
    const listed = await eventually(() => broker.runs.list(ref));
    const ranks = listed.map(({ run, status, ended_at }): [string, number] => {
      expect(ended_at).toBe(status === "completed" ? 9 : undefined);
      return [run, status === "queued" ? 0 : status === "completed" ? 2 : 1];
    });
    expect(new Map(ranks)).toEqual(furthest);
    expect(ranks.length).toBe(furthest.size);
    const record = await eventually(() => broker.sessions.get(ref));
    expect(new Set(Object.keys(record.members))).toEqual(members);
    const page = await broker.sessionIndex.list(ref.session, "ann", { limit: 200 });
    expect(new Set(page.entries.map((each) => each.session))).toEqual(sessions);
    for (const [id, bytes] of objects) {
      const found = await broker.objects.get(ref, id);
      expect(found && Buffer.compare(found, bytes)).toBe(0);
    }
  }
}, 120_000);
