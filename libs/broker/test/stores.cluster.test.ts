import { randomBytes } from "node:crypto";
import { eventually, type NatsCluster, startNatsCluster } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Broker, openBroker, type RunEntry, type RunRef } from "../src/index.ts";
import { freshRun } from "./harness.ts";

let cluster: NatsCluster;
/** One broker per server, so that readers sit on other nodes than the streams' leaders. */
let brokers: Broker[];

beforeAll(async () => {
  cluster = await startNatsCluster(3);
  brokers = await Promise.all(
    cluster.urls.map((url, i) =>
      openBroker({
        servers: [url],
        name: `b${i}`,
        shards: 1,
        replicas: 3,
        connectTimeoutMs: 60_000,
      }),
    ),
  );
}, 90_000);
afterAll(async () => {
  await Promise.all(brokers.map((b) => b.close()));
  await cluster.dispose();
});

function at(index: number): Broker {
  const broker = brokers[index % brokers.length];
  if (!broker) throw new Error("no broker");
  return broker;
}

function entry(ref: RunRef, over: Partial<RunEntry> = {}): RunEntry {
  const { tenant, session, run } = ref;
  const said = { agent: "echo", status: "queued", by: "ann", queued_at: Date.now() } as const;
  return { tenant, session, run, ...said, ...over };
}

const same = (a: Uint8Array | undefined, b: Uint8Array): boolean =>
  a !== undefined && Buffer.compare(a, b) === 0;

describe("on a 3-node cluster", () => {
  test("[KEP2] [OBJ4] 300 times: what one node has just put, another reads, an object, a list and a snapshot", async () => {
    const session = freshRun();
    const mark = { attempt: 1, writer: "w", epoch: "e", cmd: 0, streamSeq: 1 };
    for (let i = 0; i < 300; i += 1) {
      const [writer, reader] = [at(i), at(i + 1 + (i % 2))];
      const ref = freshRun();
      const listed = { ...ref, session: session.session };
      const bytes = randomBytes(i % 10 === 0 ? 700 * 1024 : 1_000);
      const { $artifact } = await writer.objects.put(ref, bytes);
      expect(same(await reader.objects.get(ref, $artifact), bytes)).toBe(true);
      await writer.runs.put(entry(listed, { queued_at: i }));
      expect((await reader.runs.list(listed, 1))[0]?.run).toBe(ref.run);
      await writer.snapshots.write(ref, { ...mark, seq: i, state: { i } });
      expect((await reader.snapshots.read(ref, "replica"))?.state).toEqual({ i });
      const told = { session: ref.session, created_at: i };
      await writer.sessionIndex.add("acme", "ann", told);
      const page = await reader.sessionIndex.list("acme", "ann", { limit: 1 });
      expect(page.entries).toEqual([told]);
    }
    const all = await at(0).runs.list(session, 1_000);
    expect(all.map((each) => each.queued_at)).toEqual(
      Array.from({ length: 300 }, (_, i) => 299 - i),
    );
  }, 120_000);

  test("[KEP1] one record changed through three nodes at once: every change is in it, and an entry stays ended", async () => {
    const ref = freshRun();
    const made = { members: {}, created_at: 1, command_hash: "h", owner: "ann" };
    await at(0).sessions.create({ tenant: ref.tenant, session: ref.session, ...made });
    const users = Array.from({ length: 30 }, (_, i) => `user ${i}`);
    await Promise.all(
      users.map((user, i) =>
        at(i).sessions.update(ref, (held) => ({
          ...held,
          members: { ...held.members, [user]: "viewer" },
        })),
      ),
    );
    await eventually(async () => {
      const held = await at(1).sessions.get(ref);
      return Object.keys(held?.members ?? {}).length === users.length;
    });
    const ended = entry(ref, { status: "completed", ended_at: 5, queued_at: 1 });
    const puts = [
      entry(ref, { queued_at: 1 }),
      ended,
      entry(ref, { status: "running", queued_at: 1 }),
    ];
    await Promise.all(puts.map((each, i) => at(i).runs.put(each)));
    expect(await at(2).runs.list(ref)).toEqual([ended]);
  }, 60_000);

  test("[OBJ5] [KEP1] the leaders are killed while objects, snapshots and entries are written: all is there, whole", async () => {
    const leader = await cluster.streamLeader("TL_OB_0");
    const alive = brokers.filter((_, i) => cluster.nodes[i] !== leader);
    const through = (i: number): Broker => alive[i % alive.length] ?? at(0);
    const work = Array.from({ length: 6 }, (_, i) => ({
      ref: freshRun(),
      bytes: randomBytes(6e6 + i),
    }));
    const mark = { attempt: 1, writer: "w", epoch: "e", cmd: 0, streamSeq: 1, seq: 1 };
    const state = { text: "x".repeat(2_000_000) };
    const writing = work.map(async ({ ref, bytes }, i) => {
      const made = await through(i).objects.put(ref, bytes);
      await through(i).runs.put(entry(ref));
      await through(i).snapshots.write(ref, { ...mark, state });
      return made;
    });
    await eventually(
      async () => (await through(0).jsm.streams.info("TL_OB_0")).state.bytes > 2_000_000,
    );
    await leader.kill();
    const made = await Promise.all(writing);
    for (const [i, { ref, bytes }] of work.entries()) {
      const other = through(i + 1);
      const found = await eventually(() => other.objects.get(ref, made[i]?.$artifact ?? ""));
      expect(same(found, bytes)).toBe(true);
      expect((await other.runs.list(ref)).length).toBe(1);
      expect((await other.snapshots.read(ref, "replica"))?.state).toEqual(state);
    }
    const stored = await through(0).jsm.streams.info("TL_OB_0", { subjects_filter: ">" });
    for (const { ref } of work) {
      const own = Object.entries(stored.state.subjects ?? {}).filter(([subject]) =>
        subject.includes(`.${ref.session}.c.`),
      );
      // 23 chunks of the object and 8 of the state, each stored once.
      expect(own.map(([, count]) => count).toSorted((a, b) => a - b)).toEqual([8, 23]);
    }
    await leader.restart();
    await cluster.settled();
  }, 90_000);

  test("[KEP2] a replica is frozen: reads go on, through the leader where they must", async () => {
    const leader = await cluster.streamLeader("TL_OB_0");
    const runsLeader = await cluster.streamLeader("KV_TL_RUNS");
    const frozen = cluster.nodes.find((node) => node !== leader && node !== runsLeader);
    const reader = brokers.find((_, i) => cluster.nodes[i] !== frozen) ?? at(0);
    const ref = freshRun();
    const bytes = randomBytes(600 * 1024);
    const { $artifact } = await reader.objects.put(ref, bytes);
    await reader.runs.put(entry(ref));
    await frozen?.pause();
    try {
      for (let i = 0; i < 6; i += 1) {
        expect(same(await reader.objects.get(ref, $artifact), bytes)).toBe(true);
        expect((await reader.runs.get(ref))?.run).toBe(ref.run);
        expect((await reader.runs.list(ref)).length).toBe(1);
      }
    } finally {
      frozen?.resume();
    }
    await cluster.settled();
  }, 120_000);
});
