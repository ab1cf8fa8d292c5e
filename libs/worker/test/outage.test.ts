/** NATS slow, away, and back again. Each test has a server of its own. */
import { eventually, natsFilter, type NatsServer, startNats, tcpProxy } from "@throughline/testkit";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defineAgent } from "../src/index.ts";
import {
  ACK_WAIT_MS,
  answered,
  command,
  ended,
  latch,
  logged,
  reduced,
  startRun,
  startWorker,
  type TestWorker,
  typesOf,
  unique,
} from "./harness.ts";

let nats: NatsServer;
const workers: TestWorker[] = [];

beforeEach(async () => {
  nats = await startNats();
});
afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.stop()));
  await Promise.all(workers.splice(0).map((worker) => worker.die()));
  await nats.dispose();
});

async function hosted(agent: ReturnType<typeof defineAgent>): Promise<TestWorker> {
  const worker = await startWorker(nats.url, [agent]);
  workers.push(worker);
  return worker;
}

const PIECE = "x".repeat(16 * 1024);
const PIECES = 256; // 4 MiB: more than may wait for the log

describe("while the log does not keep up", () => {
  it("[OPS9] write waits, and loses nothing", async () => {
    const begun = latch();
    const go = latch();
    let written = 0;
    const agent = defineAgent({
      name: unique("torrent"),
      run: async (ctx) => {
        const message = ctx.message();
        begun.open();
        await go.opened;
        for (; written < PIECES; written++) await message.write(PIECE);
        await message.end();
      },
    });
    const worker = await hosted(agent);
    const ref = await startRun(worker.broker, agent.name);
    await begun.opened;
    await nats.pause();
    go.open();
    let before = -1;
    await eventually(
      () => {
        const still = written === before;
        before = written;
        return still && written > 0;
      },
      { everyMs: 200 },
    );
    expect(written * PIECE.length).toBeLessThan(2 * 1024 * 1024);
    nats.resume();
    const state = reduced(ref, await ended(worker.broker, ref, 20_000));
    expect(state.messages[0]?.text.length).toBe(PIECES * PIECE.length);
  });
});

describe("an outage longer than the lease", () => {
  it("[HOST4][INV3] leaves each run with its worker, and loses none of its events", async () => {
    const hold = latch();
    const agent = defineAgent({
      name: unique("patient"),
      run: async (ctx) => {
        let n = 0;
        while (!released) {
          await ctx.emit("tick", n++);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        await hold.opened;
        return n;
      },
    });
    let released = false;
    const first = await hosted(agent);
    const refs = await Promise.all([1, 2, 3].map(() => startRun(first.broker, agent.name)));
    await eventually(() => first.active === 3);
    const second = await hosted(agent);
    await nats.kill();
    await new Promise((resolve) => setTimeout(resolve, 2 * ACK_WAIT_MS)); // the outage itself, longer than the lease
    await nats.restart();
    await eventually(() => first.broker.connection === "up" && second.broker.connection === "up", {
      timeoutMs: 20_000,
    });
    // Redelivered by now, and left alone: as long as several leases.
    await new Promise((resolve) => setTimeout(resolve, 3 * ACK_WAIT_MS));
    released = true;
    hold.open();
    for (const ref of refs) {
      const events = await ended(first.broker, ref, 20_000);
      expect(typesOf(events)).not.toContain("run.resumed");
      const state = reduced(ref, events);
      expect(events.filter((event) => event.type === "custom")).toHaveLength(
        state.output as number,
      );
    }
    expect(second.active).toBe(0);
  });
});

describe("signs of life that are lost", () => {
  it("[HOST4] leave the run where it is: whoever gets it asks its owner first", async () => {
    const hold = latch();
    const agent = defineAgent({
      name: unique("quiet"),
      run: (ctx) => hold.opened.then(() => ctx.attempt),
    });
    const first = await startWorker(nats.url, [agent], { capacity: 1 });
    workers.push(first);
    const { nc, jsm } = first.broker;
    const publish = nc.publish.bind(nc);
    nc.publish = (subject, payload, options) => {
      if (payload !== "+WPI") publish(subject, payload, options);
    };
    const ref = await startRun(first.broker, agent.name);
    await eventually(() => first.active === 1);
    await hosted(agent);
    // Without room the first asks for no more: each redelivery comes to the second.
    await eventually(async () => {
      const { delivered } = await jsm.consumers.info(
        `TL_EV_${first.broker.shardOf(ref.session)}`,
        `agent_${agent.name}`,
      );
      return delivered.consumer_seq >= 4;
    });
    hold.open();
    const events = await ended(first.broker, ref);
    expect(reduced(ref, events).output).toBe(1);
  });
});

describe("a worker that is told to go while NATS says nothing of its appends", () => {
  it("[FIN6] goes, though a command is being applied", async () => {
    const agent = defineAgent({
      name: unique("waits"),
      run: async (ctx) => {
        await ctx.inbox.next();
        return ctx.attempt;
      },
    });
    const near = await hosted(defineAgent({ name: unique("other"), run: () => 0 }));
    const proxy = await tcpProxy({ port: nats.port });
    let deaf = false;
    const filter = natsFilter(({ payload }) => {
      const text = payload.toString();
      const told = text.startsWith('{"stream":"TL_EV_') || text.includes("stream_msg_get_response");
      return deaf && told ? "drop" : "pass";
    });
    proxy.tap(filter.tap);
    const far = await startWorker(proxy.address, [agent], { graceMs: 0 });
    const ref = await startRun(near.broker, agent.name);
    await logged(near.broker, ref, (event) => event.type === "run.status");
    deaf = true;
    const { id } = await command(near.broker, ref, "run.continue", { payload: { content: 1 } });
    // Stored, which its worker never hears: it asks on and on.
    await answered(near.broker, ref, id);
    const begun = performance.now();
    await far.stop();
    expect(performance.now() - begun).toBeLessThan(15_000);
    await far.die();
    await hosted(agent);
    expect(reduced(ref, await ended(near.broker, ref)).output).toBe(2);
    proxy.close();
  }, 40_000);

  it("[FIN6] goes, though the run's end is being stored", async () => {
    const near = await hosted(defineAgent({ name: unique("other"), run: () => 0 }));
    const proxy = await tcpProxy({ port: nats.port });
    let deaf = false;
    let appended = false;
    const filter = natsFilter(({ payload }) => {
      const text = payload.toString();
      // What the leader is asked before the end is appended is still answered.
      if (deaf && text.startsWith('{"stream":"TL_EV_')) appended = true;
      const told = text.startsWith('{"stream":"TL_EV_') || text.includes("stream_msg_get_response");
      return appended && told ? "drop" : "pass";
    });
    proxy.tap(filter.tap);
    const agent = defineAgent({
      name: unique("ends"),
      run: (ctx) => ctx.attempt,
    });
    const far = await startWorker(proxy.address, [agent], { graceMs: 0 });
    // The end waits for the list, and is the next that is appended.
    const { runs } = far.broker;
    const put = runs.put.bind(runs);
    runs.put = async (entry) => {
      await put(entry);
      deaf = true;
    };
    const ref = await startRun(near.broker, agent.name);
    await ended(near.broker, ref);
    const begun = performance.now();
    await far.stop();
    expect(performance.now() - begun).toBeLessThan(15_000);
    await far.die();
    proxy.close();
  }, 40_000);
});
