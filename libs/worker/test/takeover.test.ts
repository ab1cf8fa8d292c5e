import { type Broker, openRunWriter } from "@throughline/broker";
import { eventually, type NatsServer, seededRandom } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { AgentError, defineAgent, type RunContext } from "../src/index.ts";
import {
  ended,
  latch,
  logOf,
  reduced,
  startRun,
  startWorker,
  type TestWorker,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made));

/** A worker that dies when `reached` opens. It is not stopped after the test: the dead stop nothing. */
async function doomed(
  agent: ReturnType<typeof defineAgent>,
  reached: Promise<void>,
): Promise<TestWorker> {
  const worker = await startWorker(nats.url, [agent]);
  void reached.then(() => worker.die());
  return worker;
}

describe("takeover", () => {
  it("[HOST6][OPS2][OPS5][OPS6] completed work is skipped, the rest is done again", async () => {
    const reached = latch();
    const never = latch();
    const executed: string[] = [];
    const swallowed: boolean[] = [];
    const agent = defineAgent({
      name: unique("work"),
      run: async (ctx) => {
        executed.push(`run ${ctx.attempt}`);
        const one = await ctx.step("part", () => {
          executed.push(`one ${ctx.attempt}`);
          return { by: ctx.attempt };
        });
        await ctx.emit("progress", 1);
        const first = ctx.message();
        swallowed.push(first.stored);
        await first.write("first message");
        await first.end();
        await ctx.emit("progress", 2);
        const second = ctx.message();
        swallowed.push(second.stored);
        await second.write(`written by ${ctx.attempt}`);
        const two = await ctx.step("part", async (step) => {
          executed.push(`two ${ctx.attempt}`);
          await step.emit("inside", ctx.attempt);
          const inner = await step.step("inner", () => ctx.attempt);
          await step.message().write(`in step, attempt ${ctx.attempt}`);
          if (ctx.attempt === 1) {
            reached.open();
            await never.opened;
          }
          return inner;
        });
        await second.end();
        await ctx.emit("progress", 3);
        return { one, two };
      },
    });
    await doomed(agent, reached.opened);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await hosted(agent);
    const events = await ended(broker, ref);
    const state = reduced(ref, events);

    expect(executed).toEqual(["run 1", "one 1", "two 1", "run 2", "two 2"]);
    expect(swallowed).toEqual([false, false, true, false]);
    expect(state.output).toEqual({ one: { by: 1 }, two: 1 });
    expect(events.filter((e) => e.type === "custom").map((e) => e.payload)).toEqual([
      { name: "progress", value: 1 },
      { name: "progress", value: 2 },
      { name: "inside", value: 1 },
      { name: "progress", value: 3 },
    ]);
    // [HOST6] The cut-short step is closed, its message with it; the completed inner step stays.
    expect(state.steps.map((s) => [s.key, s.status])).toEqual([
      ["part#1", "completed"],
      ["part#2", "superseded"],
      ["part#2/inner#1", "completed"],
      ["part#2", "completed"],
    ]);
    expect(
      state.messages.filter((m) => m.status !== "superseded").map((m) => [m.key, m.text]),
    ).toEqual([
      ["@message#1", "first message"],
      ["@message#2", "written by 2"],
      ["part#2/@message#1", "in step, attempt 2"],
    ]);
    expect(state.attempt).toBe(2);
  });

  it("[HOST1][C18] a worker that dies as it takes a run up leaves it to the next, whether its first event is stored or not", async () => {
    const agent = defineAgent({ name: unique("untouched"), run: (ctx) => ctx.attempt });
    const claimed = latch();
    const first = await startWorker(nats.url, [agent], {
      events: {
        claimed: () => {
          void first.die();
          claimed.open();
        },
        left: () => undefined,
      },
    });
    const ref = await startRun(broker, agent.name);
    await claimed.opened;
    await hosted(agent);
    const events = await ended(broker, ref);
    const types = typesOf(events).filter((type) => type !== "run.resumed");
    expect(types).toEqual(["run.queued", "run.started", "run.completed"]);
    expect(reduced(ref, events).output).toBe(events.length - 2);
  });

  it("[HOST1] the takeover's first event is the fence, and carries the attempt", async () => {
    const reached = latch();
    const agent = defineAgent({
      name: unique("fence"),
      run: async (ctx) => {
        await ctx.emit("attempt", ctx.attempt);
        if (ctx.attempt === 1) {
          reached.open();
          await new Promise(() => undefined);
        }
      },
    });
    await doomed(agent, reached.opened);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const second = await hosted(agent);
    const events = await ended(broker, ref);
    const resumed = events.find((e) => e.type === "run.resumed");
    expect(resumed?.payload).toEqual({ attempt: 2, worker: second.id });
    // [OPS6] The emit of attempt 1 is stored, so attempt 2 skips it.
    expect(events.flatMap((e) => (e.type === "custom" ? [e.payload.value] : []))).toEqual([1]);
  });

  it("[OPS2] a failed step throws its stored failure again, and is not executed", async () => {
    const reached = latch();
    let tries = 0;
    const agent = defineAgent({
      name: unique("failing"),
      run: async (ctx) => {
        const caught = await ctx
          .step("bad", () => {
            tries++;
            throw new AgentError("nope", "it never works");
          })
          .catch((error: unknown) =>
            error instanceof AgentError ? `${error.code}: ${error.message}` : "?",
          );
        if (ctx.attempt === 1) {
          reached.open();
          await new Promise(() => undefined);
        }
        return caught;
      },
    });
    await doomed(agent, reached.opened);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await hosted(agent);
    expect(reduced(ref, await ended(broker, ref)).output).toBe("nope: it never works");
    expect(tries).toBe(1);
  });

  it("[OPS12] a recorded tool call is in the log once, and whole", async () => {
    const reached = latch();
    const agent = defineAgent({
      name: unique("recorder"),
      run: async (ctx) => {
        await ctx.tools.record({ name: "ls", args: { at: "/" }, result: ["a"] });
        if (ctx.attempt === 1) {
          reached.open();
          await new Promise(() => undefined);
        }
        await ctx.tools.record({ name: "cat", args: { at: "/a" }, result: "x" });
      },
    });
    await doomed(agent, reached.opened);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(typesOf(events).filter((type) => type.startsWith("tool_call"))).toEqual([
      "tool_call.created",
      "tool_call.completed",
      "tool_call.created",
      "tool_call.completed",
    ]);
    expect(reduced(ref, events).tool_calls.map((t) => [t.name, t.status, t.result])).toEqual([
      ["ls", "completed", ["a"]],
      ["cat", "completed", "x"],
    ]);
  });

  it("[HOST5][INV3] a worker that lost its run stops its agent at once and appends nothing more", async () => {
    const reached = latch();
    const stopped = latch();
    const later: unknown[] = [];
    const agent = defineAgent({
      name: unique("zombie"),
      run: async (ctx) => {
        if (ctx.attempt > 1) return "in the end";
        await ctx.emit("here", ctx.attempt);
        ctx.signal.addEventListener("abort", () => stopped.open());
        reached.open();
        await stopped.opened;
        later.push(ctx.signal.reason);
        await ctx.emit("after the fence", ctx.attempt).catch((error: unknown) => later.push(error));
      },
    });
    const worker = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    // Another attempt comes from outside, as after a freeze.
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    if (!last) throw new Error("no log");
    const successor = openRunWriter(broker, {
      ref,
      epoch: last.epoch,
      attempt: 2,
      worker: "another",
      position: { seq: last.lastSeq, streamSeq: last.streamSeq, eSeq: last.streamSeq, cmd: 0 },
    });
    await successor.append({ type: "run.resumed", payload: { attempt: 2, worker: "another" } });
    await command(ref);
    await eventually(() => worker.active === 0);
    await eventually(() => later.length === 2);
    expect(later.map((error) => (error as Error).name)).toEqual(["RunStopped", "RunStopped"]);
    expect(typesOf(await logOf(broker, ref))).toEqual([
      "run.queued",
      "run.started",
      "custom",
      "run.resumed",
    ]);
    // Nor does it say that it is at work on the delivery: when "another" is silent for the time of the
    // lease, the run goes to whoever is there.
    await successor.close();
    const rest = await ended(broker, ref);
    expect(typesOf(rest).slice(4)).toEqual(["run.resumed", "command.rejected", "run.completed"]);

    /** Makes the zombie want to append: it has to answer. */
    async function command(to: typeof ref): Promise<void> {
      const value = {
        type: "run.resume",
        id: "c1",
        session_id: to.session,
        run_id: to.run,
        payload: {},
      } as const;
      await broker.commands.publish({ ref: to, command: value, user: "ann", hash: "h" });
    }
  });

  it("[HOST7] attempts without progress are capped", async () => {
    const agent = defineAgent({
      name: unique("deadly"),
      run: async (ctx) => {
        await ctx.step("kills its worker", async (step) => {
          await step.message().write("so far");
          dying.get(ctx.attempt)?.open();
          await new Promise(() => undefined);
        });
      },
    });
    const dying = new Map(Array.from({ length: 5 }, (_, i) => [i + 1, latch()]));
    const ref = await startRun(broker, agent.name);
    for (const attempt of dying.values()) {
      await doomed(agent, attempt.opened);
      await attempt.opened;
    }
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(events.at(-1)).toMatchObject({
      type: "run.failed",
      payload: { code: "too_many_attempts" },
    });
    expect(events.filter((e) => e.type === "run.resumed")).toHaveLength(5);
    expect(events.filter((e) => e.type === "step.started")).toHaveLength(5);
    // [FIN1] for those who show it: nothing is left running.
    expect(reduced(ref, events).steps.some((s) => s.status === "running")).toBe(false);
  });

  it("[OPS1][INV6] at whatever point the worker dies, the run's outcome is the same", async () => {
    const random = seededRandom();
    for (let round = 0; round < 6; round++) {
      const dieAt = random.int(18);
      let at = 0;
      const reached = latch();
      /** Called between all operations: the place where this round's worker dies. */
      const place = async (ctx: RunContext): Promise<void> => {
        if (ctx.attempt === 1 && at++ === dieAt) {
          reached.open();
          await new Promise(() => undefined);
        }
      };
      const agent = defineAgent({
        name: unique("anywhere"),
        run: async (ctx) => {
          const sums: number[] = [];
          for (let i = 0; i < 3; i++) {
            await place(ctx);
            sums.push(
              await ctx.step("sum", async (step) => {
                await place(ctx);
                await step.emit("step", i);
                await place(ctx);
                return i + 1;
              }),
            );
            await place(ctx);
            const message = ctx.message();
            await message.write(`text ${i} `);
            await place(ctx);
            await message.write("ends");
            await message.end();
            await place(ctx);
            await ctx.setState({ [`k${i}`]: sums });
          }
          return sums;
        },
      });
      await doomed(agent, reached.opened);
      const ref = await startRun(broker, agent.name);
      await reached.opened;
      const worker = await hosted(agent);
      const state = reduced(ref, await ended(broker, ref));
      expect(state.output).toEqual([1, 2, 3]);
      expect(state.app).toEqual({ k0: [1], k1: [1, 2], k2: [1, 2, 3] });
      expect(state.messages.map((m) => [m.text, m.status])).toEqual(
        [0, 1, 2].map((i) => [`text ${i} ends`, "completed"]),
      );
      expect(state.emits["sum#1/@emit"]).toBe(1);
      await worker.stop();
    }
  });
});
