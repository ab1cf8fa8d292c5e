import { type Broker } from "@throughline/broker";
import { eventually, startNats } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { endBegins } from "../src/deadline.ts";
import { defineAgent, type RunStopped } from "../src/index.ts";
import {
  ended,
  latch,
  reduced,
  startRun,
  startWorker,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";

let broker: Broker;
const hosted = workshop((made) => ({ broker } = made));

/** So long that a run which another worker gets sooner was handed to it. */
const LONG_LEASE = { ackWaitMs: 20_000 };

describe("shutting down", () => {
  it("[FIN5][FIN6] lets a step end, begins no other, and hands the run on at once", async () => {
    const inStep = latch();
    const goOn = latch();
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("steps"),
      run: async (ctx) => {
        for (const name of ["one", "two", "three"]) {
          await ctx.step(name, async () => {
            executed.push(`${name} ${ctx.attempt}`);
            if (name === "two") {
              inStep.open();
              await goOn.opened;
            }
          });
        }
        return ctx.attempt;
      },
    });
    const first = await hosted(agent, LONG_LEASE);
    const ref = await startRun(broker, agent.name);
    await inStep.opened;
    const stopping = first.stop();
    await hosted(agent, LONG_LEASE);
    goOn.open();
    await stopping;
    const events = await ended(broker, ref, 5_000);
    expect(executed).toEqual(["one 1", "two 1", "three 2"]);
    expect(reduced(ref, events).output).toBe(2);
    expect(typesOf(events)).not.toContain("step.superseded");
  });

  it("[FIN5] a run that finishes within the grace is not handed on", async () => {
    const inRun = latch();
    const goOn = latch();
    const agent = defineAgent({
      name: unique("nearly"),
      run: async (ctx) => {
        inRun.open();
        await goOn.opened;
        return ctx.attempt;
      },
    });
    const worker = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await inRun.opened;
    const stopping = worker.stop();
    goOn.open();
    await stopping;
    expect(reduced(ref, await ended(broker, ref, 1_000)).output).toBe(1);
  });

  it("[FIN4][FIN5] a step that outlasts the grace is cut short, even one that ignores its signal", async () => {
    const inStep = latch();
    const deaf = latch();
    const reasons: unknown[] = [];
    const agent = defineAgent({
      name: unique("outlasts"),
      run: async (ctx) => {
        await ctx.step("long", async (step) => {
          ctx.signal.addEventListener("abort", () => reasons.push(ctx.signal.reason));
          await step.message().write(`attempt ${ctx.attempt}`);
          if (ctx.attempt > 1) return;
          inStep.open();
          await deaf.opened;
        });
        return ctx.attempt;
      },
    });
    const first = await hosted(agent, { ...LONG_LEASE, graceMs: 200 });
    const ref = await startRun(broker, agent.name);
    await inStep.opened;
    const from = performance.now();
    await first.stop();
    expect(performance.now() - from).toBeLessThan(5_000);
    expect(first.active).toBe(0);
    expect(reasons).toHaveLength(1);
    expect((reasons[0] as RunStopped).reason).toBe("shutdown");
    await hosted(agent, LONG_LEASE);
    const events = await ended(broker, ref, 5_000);
    const state = reduced(ref, events);
    expect(state.steps.map((s) => s.status)).toEqual(["superseded", "completed"]);
    expect(state.messages.map((m) => [m.text, m.status])).toEqual([
      ["attempt 1", "superseded"],
      ["attempt 2", "completed"],
    ]);
    deaf.open();
  });

  it("[SNAP1] a hand-back leaves a snapshot for the next worker", async () => {
    const inRun = latch();
    const agent = defineAgent({
      name: unique("snaps"),
      run: async (ctx) => {
        await ctx.emit("one", 1);
        if (ctx.attempt > 1) return;
        inRun.open();
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      },
    });
    const worker = await hosted(agent, { graceMs: 50 });
    const ref = await startRun(broker, agent.name);
    await inRun.opened;
    await worker.stop();
    expect(await broker.snapshots.read(ref, "leader")).toMatchObject({ seq: 3, attempt: 1 });
  });

  it("[FIN5] NATS being away does not keep a worker from stopping", async () => {
    const own = await startNats();
    const inRun = latch();
    const agent = defineAgent({
      name: unique("cutoff"),
      run: async (ctx) => {
        inRun.open();
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      },
    });
    const worker = await startWorker(own.url, [agent], { graceMs: 100 });
    await startRun(worker.broker, agent.name);
    await inRun.opened;
    await own.pause();
    await worker.stop();
    expect(worker.active).toBe(0);
    await worker.die();
    await own.dispose();
  });
});

describe("the deadline", () => {
  it("[FIN2] leaves the owner 5 s to end the run, or a tenth of its time", () => {
    expect(endBegins(0, 72 * 3_600_000)).toBe(72 * 3_600_000 - 5_000);
    expect(endBegins(1_000, 2_000)).toBe(1_900);
    expect(endBegins(2_000, 1_000)).toBe(1_000);
  });

  it("[FIN2] aborts the agent's signal first, then fails the run", async () => {
    const order: string[] = [];
    const agent = defineAgent({
      name: unique("late"),
      run: async (ctx) => {
        ctx.signal.addEventListener("abort", () => {
          order.push((ctx.signal.reason as RunStopped).reason);
        });
        await ctx.step("endless", async (step) => {
          await step.message().write("…");
          await new Promise((_, reject) =>
            ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)),
          );
        });
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { deadlineMs: 1_500 });
    const events = await ended(broker, ref);
    order.push("terminal");
    expect(order).toEqual(["deadline", "terminal"]);
    expect(events.at(-1)).toMatchObject({
      type: "run.failed",
      payload: { code: "deadline", retryable: false },
    });
    expect(reduced(ref, events).steps[0]).toMatchObject({
      status: "failed",
      error: { code: "deadline" },
    });
  });

  it("[HOST4] an ended run is out of hand, and its job acked", async () => {
    const agent = defineAgent({ name: unique("short"), run: () => 1 });
    const worker = await hosted(agent);
    await ended(broker, await startRun(broker, agent.name));
    await eventually(() => worker.active === 0);
    await eventually(async () => {
      for (let shard = 0; shard < broker.shards; shard++) {
        const info = await broker.jsm.consumers.info(`TL_EV_${shard}`, `agent_${agent.name}`);
        if (info.num_ack_pending > 0 || info.num_pending > 0) return false;
      }
      return true;
    });
  });
});
