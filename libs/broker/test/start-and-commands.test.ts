import { eventually, natsFilter, type NatsServer, startNats, tcpProxy } from "@throughline/testkit";
import type { Command } from "@throughline/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  bodyHash,
  type Broker,
  BrokerUnavailable,
  deriveRunId,
  deriveSessionId,
  openBroker,
  type RunRef,
  type StoredCommand,
} from "../src/index.ts";
import { eventSubject, streamName } from "../src/subjects.ts";
import { freshRun, note, startedWriter, startRun, wholeLog } from "./harness.ts";

let nats: NatsServer;
let a: Broker;
let b: Broker;

beforeAll(async () => {
  nats = await startNats();
  a = await openBroker({ servers: [nats.url], name: "a", shards: 2 });
  b = await openBroker({ servers: [nats.url], name: "b", shards: 2 });
});
afterAll(async () => {
  await a.close();
  await b.close();
  await nats.dispose();
});

function cancel(ref: RunRef, id: string, reason = "enough"): Command {
  return {
    type: "run.cancel",
    id,
    session_id: ref.session,
    run_id: ref.run,
    payload: { reason },
  };
}

function publish(on: Broker, ref: RunRef, command: Command, user = "ann") {
  return on.commands.publish({ ref, command, user, hash: bodyHash(command) });
}

describe("ids", () => {
  test("[STA1] the same command id makes the same session and run on any node, and two runs in two sessions", () => {
    const scope = { tenant: "acme", user: "auth0|7 ü", id: "cmd_1" };
    expect(deriveSessionId(scope)).toBe(deriveSessionId({ ...scope }));
    expect(deriveSessionId(scope)).toMatch(/^ses_[A-Za-z0-9_-]{22}$/);
    const one = deriveRunId({ ...scope, session: "ses_1" });
    const two = deriveRunId({ ...scope, session: "ses_2" });
    expect(one).toMatch(/^run_[A-Za-z0-9_-]{22}$/);
    expect(one).not.toBe(two);
    // Parts are quoted: moving a character over a border is another scope.
    expect(deriveSessionId({ tenant: "a", user: "bc", id: "1" })).not.toBe(
      deriveSessionId({ tenant: "ab", user: "c", id: "1" }),
    );
  });

  test("[CMD1] a body's hash is blind to the order of members and to nothing else", () => {
    expect(bodyHash({ a: 1, b: [{ c: 2, d: 3 }] })).toBe(bodyHash({ b: [{ d: 3, c: 2 }], a: 1 }));
    expect(bodyHash({ a: 1 })).not.toBe(bodyHash({ a: "1" }));
    expect(bodyHash([1, 2])).not.toBe(bodyHash([2, 1]));
    expect(bodyHash(JSON.parse('{"__proto__":1}'))).not.toBe(bodyHash({}));
    expect(bodyHash({ members: { a: 1 } })).not.toBe(bodyHash({ a: 1 }));
  });
});

describe("starting a run", () => {
  test("[STA1] [STA2] [C20] [C21] again through another node it is a duplicate, with another body a conflict", async () => {
    const ref = freshRun();
    const first = await startRun(a, ref);
    expect(first.outcome).toBe("stored");
    const again = await startRun(b, ref);
    expect(again).toEqual({ ...first, outcome: "duplicate" });
    expect((await startRun(b, ref, { input: { n: 2 } })).outcome).toBe("conflict");
    expect((await startRun(b, ref, { agent: "other" })).outcome).toBe("conflict");
    expect((await wholeLog(a, ref)).length).toBe(1);
  });

  test.each([
    ["its snapshot", ""],
    ["its snapshot, however large", "x".repeat(1024 * 1024)],
  ])(
    "[STA2] [C07] after q has expired the run's later events tell, and after these %s",
    async (_, filler) => {
      const ref = freshRun();
      const shard = a.shardOf(ref.session);
      const writer = await startedWriter(a, ref);
      await writer.append(note("later"));
      const stream = streamName.events(shard);
      await a.jsm.streams.purge(stream, { filter: eventSubject.anyQ(ref, shard) });
      expect((await startRun(b, ref)).outcome).toBe("duplicate");
      expect((await startRun(b, ref, { agent: "other" })).outcome).toBe("duplicate");

      const left = { seq: 3, streamSeq: 9, attempt: 1, writer: "w", epoch: "e", cmd: 0 };
      await a.snapshots.write(ref, { ...left, state: { agent: "echo", filler } });
      await a.jsm.streams.purge(stream, { filter: eventSubject.anyOfRun(ref, shard) });
      expect((await startRun(b, ref)).outcome).toBe("duplicate");
      expect((await startRun(b, ref, { agent: "other" })).outcome).toBe("conflict");
      expect((await wholeLog(a, ref)).length).toBe(0);
    },
  );
});

describe("commands", () => {
  test("[CMD1] [INV5] [C04] [C21] once per id whatever the node; another body is a conflict; another user another command", async () => {
    const ref = freshRun();
    const first = await publish(a, ref, cancel(ref, "c1"));
    expect(first.outcome).toBe("stored");
    expect(await publish(b, ref, cancel(ref, "c1"))).toEqual({ ...first, outcome: "duplicate" });
    expect((await publish(b, ref, cancel(ref, "c1", "other"))).outcome).toBe("conflict");
    expect((await publish(b, ref, cancel(ref, "c1"), "bob")).outcome).toBe("stored");
    const elsewhere = freshRun();
    expect((await publish(b, elsewhere, cancel(elsewhere, "c1"))).outcome).toBe("stored");
  });

  test("[CMD1] [INV5] 60 tries of one command through two nodes at once: one is stored", async () => {
    const ref = freshRun();
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, (_, i) => publish(i % 2 ? a : b, ref, cancel(ref, "race"))),
    );
    expect(outcomes.filter((o) => o.outcome === "stored").length).toBe(1);
    expect(outcomes.filter((o) => o.outcome === "duplicate").length).toBe(59);
  });

  test("[CMD2] the tail hands out every command in order, those before it and those lost on the way", async () => {
    const ref = freshRun();
    const proxy = await tcpProxy({ port: nats.port });
    let n = 0;
    const filter = natsFilter((m) => {
      if (!m.subject.startsWith("tl.cl.")) return "pass";
      n += 1;
      return n % 2 === 0 ? "drop" : "pass";
    });
    proxy.tap(filter.tap);
    const worker = await openBroker({ servers: [proxy.address], name: "w", shards: 2 });
    for (let i = 0; i < 5; i += 1) await publish(a, ref, cancel(ref, `early_${i}`));
    const got: StoredCommand[] = [];
    const tail = worker.commands.tail(ref, 0, {
      command: (c) => got.push(c),
      fault: (error) => {
        throw error;
      },
    });
    await eventually(() => got.length === 5);
    for (let i = 0; i < 20; i += 1) await publish(i % 2 ? a : b, ref, cancel(ref, `late_${i}`));
    await eventually(() => got.length === 25);
    const order = got.map((c) => c.streamSeq);
    expect(order).toEqual([...order].sort((x, y) => x - y));
    expect(got.map((c) => (c.command as { id: string }).id)).toEqual([
      ...Array.from({ length: 5 }, (_, i) => `early_${i}`),
      ...Array.from({ length: 20 }, (_, i) => `late_${i}`),
    ]);
    expect(got.every((c) => c.user === "ann")).toBe(true);
    expect(filter.dropped).toBeGreaterThan(5);
    tail.close();
    await worker.close();
    proxy.close();
  });

  test("[CMD3] drainToLeader hands out what is stored though every live copy was lost", async () => {
    const ref = freshRun();
    const proxy = await tcpProxy({ port: nats.port });
    proxy.tap(natsFilter((m) => (m.subject.startsWith("tl.cl.") ? "drop" : "pass")).tap);
    const worker = await openBroker({ servers: [proxy.address], name: "w", shards: 2 });
    const got: StoredCommand[] = [];
    const tail = worker.commands.tail(ref, 0, {
      command: (c) => got.push(c),
      fault: (error) => {
        throw error;
      },
    });
    await tail.drainToLeader();
    expect(got.length).toBe(0);
    for (let i = 0; i < 10; i += 1) {
      await publish(a, ref, cancel(ref, `c_${i}`));
      await tail.drainToLeader();
      expect(got.length).toBe(i + 1);
    }
    tail.close();
    await worker.close();
    proxy.close();
  });

  test("[CMD1] NATS away: the command is not confirmed, and the same call succeeds later, once", async () => {
    const ref = freshRun();
    await nats.kill();
    await expect(publish(a, ref, cancel(ref, "c1"))).rejects.toThrow(BrokerUnavailable);
    await expect(startRun(a, freshRun())).rejects.toThrow(BrokerUnavailable);
    await nats.restart();
    await eventually(() => a.connection === "up" && b.connection === "up");
    const first = await eventually(() => publish(a, ref, cancel(ref, "c1")));
    expect(["stored", "duplicate"]).toContain(first.outcome);
    expect((await publish(b, ref, cancel(ref, "c1"))).outcome).toBe("duplicate");
  });
});

test("[READ5] a stream whose leader does not answer is BrokerUnavailable, by whatever question", async () => {
  const own = await startNats();
  const broker = await openBroker({ servers: [own.url], name: "c", shards: 1 });
  const ref = freshRun();
  await startRun(broker, ref);
  await broker.jsm.streams.delete(streamName.events(0));
  const { events } = broker;
  const run = { kind: "run", ...ref } as const;
  for (const ask of [
    () => events.head(ref),
    () => events.runs(ref),
    () => events.last(run, "leader"),
    () => events.last(run, "replica"),
    () => events.read(run, 0),
    () => events.queued(ref),
    () => events.at(ref, 1),
    () => startRun(broker, freshRun()),
  ]) {
    await expect(ask()).rejects.toThrow(BrokerUnavailable);
  }
  await broker.close();
  await own.dispose();
});

describe("set-up", () => {
  test("[SET1] again and by ten at once it is the same; ages change only where that is asked for", async () => {
    const age = async (): Promise<number> =>
      (await a.jsm.streams.info("TL_EV_0")).config.max_age / 1e6;
    const before = await age();
    const open = (adjust: boolean): Promise<Broker[]> =>
      Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          openBroker({
            servers: [nats.url],
            name: `s${i}`,
            shards: 2,
            eventsMaxAgeMs: 3_600_000,
            adjust,
          }),
        ),
      );
    const asked = await open(false);
    expect(await age()).toBe(before);
    const told = await open(true);
    expect(await age()).toBe(3_600_000);
    await Promise.all([...asked, ...told].map((broker) => broker.close()));
  });

  test("[SET2] another shard count is refused, with the way out", async () => {
    const other = openBroker({ servers: [nats.url], name: "x", shards: 3 });
    await expect(other).rejects.toThrow(/has 2 shards, 3 were asked for.*TL_SHARDS/s);
  });

  test("[SET3] a server before 2.11 is refused, with the reason", async () => {
    const proxy = await tcpProxy({ port: nats.port });
    proxy.tap(() => ({
      down: (chunk) =>
        Buffer.from(
          chunk.toString("latin1").replace(/"version":"[^"]+"/, '"version":"2.10.29"'),
          "latin1",
        ),
    }));
    const old = openBroker({ servers: [proxy.address], name: "x", shards: 2 });
    await expect(old).rejects.toThrow(/nats-server 2\.10\.29 is too old: 2\.11 or newer/);
    proxy.close();
  });

  test("a server that is not there is named within the time given", async () => {
    const none = openBroker({ servers: ["127.0.0.1:1"], name: "x", connectTimeoutMs: 300 });
    await expect(none).rejects.toThrow("no NATS server answers at 127.0.0.1:1");
  });
});
