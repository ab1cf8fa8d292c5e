import { type Broker, openBroker } from "@throughline/broker";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineAgent } from "../src/index.ts";
import { ended, latch, reduced, startRun, startWorker, unique } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
});

const RUNS = 1_200; // more than NATS lets a consumer have in flight by default

describe("many runs", () => {
  it("[HOST3] more than 1,000 of one agent are active at once, and all end", async () => {
    const hold = latch();
    let active = 0;
    const agent = defineAgent({
      name: unique("many"),
      run: async (ctx) => {
        active++;
        await ctx.emit("here", ctx.run_id);
        await hold.opened;
        return ctx.run_id;
      },
    });
    const worker = await startWorker(nats.url, [agent], { capacity: 2 * RUNS, ackWaitMs: 10_000 });
    const refs = [];
    for (let i = 0; i < RUNS; i += 100) {
      refs.push(
        ...(await Promise.all(Array.from({ length: 100 }, () => startRun(broker, agent.name)))),
      );
    }
    await eventually(() => active === RUNS, {
      timeoutMs: 20_000,
      what: () => `${active} of ${RUNS} are active`,
    });
    hold.open();
    await eventually(() => worker.active === 0, {
      timeoutMs: 20_000,
      what: () => `${worker.active} are left`,
    });
    for (const ref of refs.slice(0, 50)) {
      expect(reduced(ref, await ended(broker, ref)).output).toBe(ref.run);
    }
    await worker.stop();
    expect(worker.logged.filter((line) => line.startsWith("error"))).toEqual([]);
  });
});
