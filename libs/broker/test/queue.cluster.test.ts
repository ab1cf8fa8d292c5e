import { eventually, type NatsCluster, seededRandom, startNatsCluster } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { AgentDirectory } from "../src/agent-directory.ts";
import { type Broker, openBroker } from "../src/index.ts";
import { SessionStore } from "../src/session-store.ts";
import { SnapshotStore } from "../src/snapshot-store.ts";
import { openSweep } from "../src/sweep.ts";
import { eventsOf, freshRun, note, startRun, wholeLog } from "./harness.ts";
import { freshAgent, jobsLeft, startRuns, type TestWorker, testWorker } from "./queue-harness.ts";

const ACK_WAIT_MS = 1_500;

let cluster: NatsCluster;
let edge: Broker;
const workers: TestWorker[] = [];

beforeAll(async () => {
  cluster = await startNatsCluster(3);
  edge = await openBroker({
    servers: cluster.urls,
    name: "edge",
    shards: 1,
    replicas: 3,
    connectTimeoutMs: 60_000,
  });
}, 90_000);
afterEach(async () => {
  for (const worker of workers.splice(0)) {
    await worker.queue.stop();
    for (const { claim } of worker.works) claim.abandon();
    await worker.die();
  }
});
afterAll(async () => {
  await edge.close();
  await cluster.dispose();
});

async function worker(agent: string): Promise<TestWorker> {
  const made = await testWorker({
    servers: cluster.urls,
    agent,
    shards: 1,
    replicas: 3,
    ackWaitMs: ACK_WAIT_MS,
  });
  workers.push(made);
  return made;
}

describe("on a 3-node cluster", () => {
  test("[QUE5] [QUE11] [QUE12] [INV3] [INV4] leaders are killed while runs are queued, held, taken over and ended", async () => {
    const random = seededRandom();
    const agent = freshAgent();
    const both = [await worker(agent), await worker(agent)];
    const refs = await startRuns(edge, agent, 30);
    const given = (): number => both.reduce((sum, w) => sum + w.works.length, 0);
    await eventually(() => given() >= 30);
    const all = (): TestWorker["works"] => both.flatMap((w) => w.works);
    await Promise.all(all().map((work) => work.begun));
    // Every run has something of its own in the log.
    for (const work of all()) void (await work.begun).append(note(work.claim.ref.run));
    await Promise.all(all().map(async (work) => (await work.begun).flush()));
    const dead = both[random.int(2)];
    const alive = both.find((w) => w !== dead);
    if (!dead || !alive) throw new Error("two workers are needed");
    const orphans = dead.works.map((work) => work.claim.ref);
    const leader = await cluster.streamLeader("TL_EV_0");
    await dead.die();
    await leader.kill();
    await eventually(async () => (await edge.jsm.streams.info("TL_EV_0")).cluster?.leader, {
      timeoutMs: 30_000,
    });
    const more = await startRuns(edge, agent, 10);
    await eventually(() => [...orphans, ...more].every((ref) => alive.of(ref).length === 1), {
      timeoutMs: 30_000,
      what: "all runs are with the worker that lives",
    });
    await leader.restart();
    await cluster.settled();
    for (const work of alive.works) await alive.finish(work);
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    for (const ref of [...refs, ...more]) {
      const log = (await wholeLog(edge, ref)).flatMap(eventsOf);
      expect(log.map((event) => event.seq)).toEqual(log.map((_, i) => i + 1));
      expect(log.at(-1)?.type).toBe("run.completed");
      expect(log.filter((event) => event.type === "run.started").length).toBe(1);
      const resumed = log.filter((event) => event.type === "run.resumed").length;
      expect(resumed).toBe(orphans.some((orphan) => orphan.run === ref.run) ? 1 : 0);
    }
  }, 90_000);

  test("[QUE5] a takeover right after the last append is of the whole log, whichever replica is read", async () => {
    const agent = freshAgent();
    for (let round = 0; round < 5; round += 1) {
      const first = await worker(agent);
      const ref = freshRun();
      await startRun(edge, ref, { agent });
      const work = await first.given(ref);
      const writer = await work.begun;
      for (let i = 0; i < 300; i += 1) void writer.append(note(i));
      await writer.flush();
      first.capacity = 0;
      const second = await worker(agent);
      await work.claim.handBack();
      const after = await second.given(ref);
      expect(after.claim.log?.state.seq).toBe(302);
      await second.finish(after);
      await Promise.all([first.queue.stop(), second.queue.stop()]);
    }
  }, 60_000);

  test("[SWP3] [SES3] [SNP1] [DIR1] sweep and stores on three replicas", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const agents = new AgentDirectory(edge, { ttlMs: 900 });
    const sweep = openSweep(edge, { worker: "w", queueTimeoutMs: 300, ackWaitMs: 1_000, agents });
    await eventually(async () => (await edge.events.last({ kind: "run", ...ref }, "leader"))?.end);
    await sweep.stop();

    // A read on another node right after the write: a replica's miss is asked of the leader.
    const others = await Promise.all(
      cluster.urls.map((url) =>
        openBroker({ servers: [url], name: "reader", shards: 1, replicas: 3 }),
      ),
    );
    let misses = 0;
    for (let i = 0; i < 100; i += 1) {
      const at = freshRun();
      const record = {
        ...at,
        owner: "ann",
        members: {},
        created_at: i,
        command_hash: "h",
      };
      await new SessionStore(edge).create(record);
      const snapshot = {
        state: { i },
        seq: 1,
        streamSeq: 1,
        attempt: 1,
        writer: "w",
        epoch: "e",
        cmd: 0,
      };
      await new SnapshotStore(edge).write(at, snapshot);
      const reader = others[i % 3];
      if (!reader) throw new Error("no reader");
      if (!(await new SessionStore(reader).get(at))) misses += 1;
      if (!(await new SnapshotStore(reader).read(at, "replica"))) misses += 1;
    }
    expect(misses).toBe(0);
    await Promise.all(others.map((broker) => broker.close()));
  }, 60_000);
});
