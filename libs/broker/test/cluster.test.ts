import { eventually, type NatsCluster, seededRandom, startNatsCluster } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Broker, type LogMessage, openBroker } from "../src/index.ts";
import { eventsOf, freshRun, note, startedWriter, startRun, wholeLog } from "./harness.ts";

let cluster: NatsCluster;
/** One broker per server, so that readers sit on other nodes than the stream's leader. */
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

function dense(messages: readonly LogMessage[], from: number): number {
  let seq = from;
  for (const m of messages) {
    expect(m.firstSeq).toBe(seq + 1);
    seq = m.lastSeq;
  }
  return seq;
}

describe("on a 3-node cluster", () => {
  test("[SET1] [SET2] three processes set up at once; another shard count is refused", async () => {
    expect(brokers.every((b) => b.shards === 1)).toBe(true);
    const other = openBroker({ servers: [...cluster.urls], name: "x", shards: 2, replicas: 3 });
    await expect(other).rejects.toThrow("1 shards, 2 were asked for");
  });

  test("[TAIL2] [TAIL3] [TAIL6] [INV2] 300 fresh subscribers while events are published: 0 holes", async () => {
    let holes = 0;
    for (let i = 0; i < 300; i += 1) {
      const ref = freshRun();
      const writer = await startedWriter(at(0), ref);
      const before = await writer.append(note(0));
      const reader = at(1 + (i % 2));
      const got: LogMessage[] = [];
      const done = new Promise<void>((resolve, reject) => {
        const tail = reader.events.tail({ kind: "run", ...ref }, before.streamSeq, {
          message: (m) => {
            got.push(m);
            if (!m.end) return;
            tail.close();
            resolve();
          },
          level: () => undefined,
          fault: reject,
        });
      });
      for (let n = 1; n <= 6; n += 1) await writer.append(note(n));
      await writer.append({ type: "run.completed", payload: {} });
      await done;
      let seq = 2;
      for (const m of got) {
        if (m.firstSeq !== seq + 1) holes += 1;
        seq = m.lastSeq;
      }
      if (seq !== 9) holes += 1;
    }
    expect(holes).toBe(0);
  }, 60_000);

  test("[WRT4] [C12] [INV2] the stream leader is killed while a run is written: nothing lost, doubled or out of order", async () => {
    const refs = Array.from({ length: 5 }, () => freshRun());
    const leader = await cluster.streamLeader("TL_EV_0");
    const alive = brokers.filter((_, i) => cluster.nodes[i] !== leader);
    const writers = await Promise.all(refs.map((ref) => startedWriter(alive[0] ?? at(0), ref)));
    const got = new Map<string, LogMessage[]>(refs.map((ref) => [ref.run, []]));
    const tails = refs.map((ref, i) =>
      (alive[i % alive.length] ?? at(0)).events.tail({ kind: "run", ...ref }, 0, {
        message: (m) => got.get(m.run)?.push(m),
        level: () => undefined,
        fault: (error) => {
          throw error;
        },
      }),
    );
    const appends: Promise<unknown>[] = [];
    for (let i = 0; i < 300; i += 1) {
      for (const writer of writers) appends.push(writer.append(note(i)));
      if (i === 100) await leader.kill();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(appends);
    await Promise.all(writers.map((w) => w.append({ type: "run.completed", payload: {} })));
    await eventually(() => [...got.values()].every((m) => m.at(-1)?.end), { timeoutMs: 40_000 });
    for (const [i, ref] of refs.entries()) {
      expect(dense(got.get(ref.run) ?? [], 0)).toBe(302);
      const log = await wholeLog(alive[0] ?? at(0), ref);
      expect(log.flatMap(eventsOf).length).toBe(302);
      tails[i]?.close();
    }
    await leader.restart();
    await cluster.settled();
  }, 90_000);

  test("[STA1] [STA2] [C20] one start through three nodes at once, also with other agents: one run", async () => {
    const random = seededRandom();
    for (let i = 0; i < 60; i += 1) {
      const ref = freshRun();
      const agents = random.chance(0.5) ? ["a", "a", "a"] : ["a", "b", "c"];
      const outcomes = await Promise.allSettled(
        agents.map((agent, n) => startRun(at(n), ref, { agent })),
      );
      const stored = outcomes.filter(
        (o) => o.status === "fulfilled" && o.value.outcome === "stored",
      );
      expect(stored.length).toBe(1);
      // Who was refused while another was being decided may ask again, and is then told the same by all.
      for (const [n, agent] of agents.entries()) {
        const again = await eventually(() => startRun(at(n), ref, { agent }));
        expect(["duplicate", "conflict"]).toContain(again.outcome);
      }
      const log = await wholeLog(at(0), ref);
      expect(log.length).toBe(1);
    }
  }, 60_000);

  test("[CMD4] [CMD5] a command stored through one node is found through another at once, 100 times", async () => {
    for (let i = 0; i < 100; i += 1) {
      const ref = freshRun();
      const say = (id: string): ReturnType<Broker["commands"]["publish"]> =>
        at(i).commands.publish({
          ref,
          user: "ann",
          hash: id,
          at: 1_000 + i,
          command: {
            type: "run.continue",
            id,
            session_id: ref.session,
            run_id: ref.run,
            payload: { content: id },
          },
        });
      await say("first");
      await say("last");
      for (const id of ["first", "last"]) {
        const found = await at(i + 1).commands.find({ ref, user: "ann", id });
        expect(found).toMatchObject({ hash: id, at: 1_000 + i, command: { id } });
      }
    }
  }, 60_000);
});
