import { type Broker } from "@throughline/broker";
import { MAX_EVENT_BYTES } from "@throughline/protocol";
import { eventually, type NatsServer } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { AgentError, defineAgent, type RunStopped } from "../src/index.ts";
import {
  ended,
  freshRef,
  latch,
  logOf,
  reduced,
  startRun,
  startWorker,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made));

describe("hosting runs", () => {
  it("[FIN9] what is emitted and too large for an event fails the run for good, with the limit", async () => {
    const agent = defineAgent({
      name: unique("large_event"),
      run: (ctx) => ctx.emit("large", "x".repeat(MAX_EVENT_BYTES)),
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).error).toMatchObject({
      code: "event_too_large",
      message: expect.stringContaining(`${MAX_EVENT_BYTES} at most: write it in smaller pieces`),
      retryable: false,
    });
  });

  it("[HOST1][HOST2] a run goes from its queue to its output", async () => {
    const agent = defineAgent({
      name: unique("greet"),
      input: (raw) => raw as { name: string },
      run: async (ctx) => {
        const message = ctx.message();
        await message.write(`Hello, `);
        await message.write(ctx.input.name);
        await message.end();
        await ctx.emit("greeted", { name: ctx.input.name });
        await ctx.setState({ greeted: [ctx.input.name] });
        await ctx.usage({ model: "m1", input_tokens: 3, output_tokens: 2 });
        const double = await ctx.step("double", () => 21 * 2);
        return { double, attempt: ctx.attempt };
      },
    });
    const worker = await hosted([agent]);
    const ref = await startRun(broker, agent.name, { input: { name: "Ann" } });
    const events = await ended(broker, ref);
    expect(typesOf(events)).toEqual([
      "run.queued",
      "run.started",
      "message.started",
      "model.chunk",
      "message.completed",
      "custom",
      "state.updated",
      "usage.updated",
      "step.started",
      "step.completed",
      "run.completed",
    ]);
    expect(events[1]?.payload).toEqual({ attempt: 1, worker: worker.id });
    const state = reduced(ref, events);
    expect(state.output).toEqual({ double: 42, attempt: 1 });
    expect(state.messages.map((m) => [m.text, m.status])).toEqual([["Hello, Ann", "completed"]]);
    expect(state.app).toEqual({ greeted: ["Ann"] });
    expect(state.usage.total).toEqual({ input_tokens: 3, output_tokens: 2 });
    expect(events.at(-1)?.payload).toMatchObject({ usage: { input_tokens: 3, output_tokens: 2 } });
  });

  it("[SNAP1][SNAP2] leaves a snapshot of its end that equals the log's reduction", async () => {
    const agent = defineAgent({
      name: unique("chatty"),
      run: async (ctx) => {
        for (let i = 0; i < 450; i++) await ctx.emit("n", i);
      },
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    const events = await ended(broker, ref);
    const snapshot = await eventually(async () => {
      const found = await broker.snapshots.read(ref, "leader");
      return found?.seq === events.length ? found : undefined;
    });
    expect(snapshot.state).toEqual(reduced(ref, events));
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    expect(snapshot).toMatchObject({
      attempt: 1,
      streamSeq: last?.streamSeq,
      writer: last?.writer,
    });
  });

  it("[SNAP1] writes one in mid-run, which covers stored events only", async () => {
    const hold = latch();
    const agent = defineAgent({
      name: unique("long"),
      run: async (ctx) => {
        for (let i = 0; i < 250; i++) await ctx.emit("n", i);
        await hold.opened;
      },
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    const snapshot = await eventually(() => broker.snapshots.read(ref, "leader"));
    expect(snapshot.seq).toBeGreaterThanOrEqual(200);
    const events = await logOf(broker, ref);
    expect(snapshot.state).toEqual(reduced(ref, events.slice(0, snapshot.seq)));
    hold.open();
    await ended(broker, ref);
  });

  it("[SNAP3] one that cannot be written ends nothing", async () => {
    const agent = defineAgent({
      name: unique("large"),
      run: async (ctx) => {
        for (let i = 0; i < 450; i++) await ctx.emit("n", i);
        return "done";
      },
    });
    const worker = await hosted([agent]);
    let tries = 0;
    worker.broker.snapshots.write = async () => {
      tries++;
      throw new Error("no room");
    };
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toBe("done");
    await eventually(() => worker.active === 0);
    expect(tries).toBeGreaterThan(0);
    expect(worker.logged.join("\n")).toContain("no room");
  });

  it("[SNAP3] one that is refused tells that the run was lost", async () => {
    const stopped = latch();
    const agent = defineAgent({
      name: unique("lost"),
      run: async (ctx) => {
        for (let i = 0; i < 200; i++) await ctx.emit("n", i);
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
        expect((ctx.signal.reason as RunStopped).reason).toBe("lost");
        stopped.open();
      },
    });
    const worker = await startWorker(nats.url, [agent]);
    worker.broker.snapshots.write = () => Promise.resolve("fenced");
    const ref = await startRun(broker, agent.name);
    await stopped.opened;
    await eventually(() => worker.active === 0);
    expect(typesOf(await logOf(broker, ref)).at(-1)).toBe("custom");
    await worker.die();
  });

  it("[OPS4] a step's begin is stored before its body runs, its end before it returns", async () => {
    const seen: string[][] = [];
    const agent = defineAgent({
      name: unique("ordered"),
      run: async (ctx) => {
        await ctx.step("one", async () => void seen.push(typesOf(await logOf(broker, ref))));
        seen.push(typesOf(await logOf(broker, ref)));
      },
    });
    const ref = freshRef();
    await hosted([agent]);
    await startRun(broker, agent.name, { ref });
    await ended(broker, ref);
    expect(seen.map((types) => types.at(-1))).toEqual(["step.started", "step.completed"]);
  });

  it("[HOST3] takes no more runs than it has room for", async () => {
    const hold = latch();
    let most = 0;
    let now = 0;
    const agent = defineAgent({
      name: unique("slow"),
      run: async () => {
        most = Math.max(most, ++now);
        await hold.opened;
        now--;
      },
    });
    const worker = await hosted([agent], { capacity: 3 });
    const refs = await Promise.all(Array.from({ length: 8 }, () => startRun(broker, agent.name)));
    await eventually(() => worker.active === 3 && now === 3);
    hold.open();
    await Promise.all(refs.map((ref) => ended(broker, ref)));
    expect(most).toBe(3);
  });

  it("[HOST9] offers its agents while it runs", async () => {
    const { openAgentDirectory } = await import("@throughline/broker");
    const agent = defineAgent({
      name: unique("offered"),
      description: "Does it.",
      examples: [{ a: 1 }],
      run: () => 1,
    });
    const worker = await hosted([agent]);
    const directory = openAgentDirectory(broker);
    await eventually(() => directory.offered(agent.name));
    expect((await directory.list()).find((kind) => kind.agent === agent.name)).toMatchObject({
      description: "Does it.",
      examples: [{ a: 1 }],
      workers: 1,
    });
    await worker.stop();
    expect(await directory.offered(agent.name)).toBe(false);
  });
});

describe("failures", () => {
  it.each([
    [
      "an AgentError",
      new AgentError("quota", "no more today", { retryable: true }),
      { code: "quota", message: "no more today", retryable: true },
    ],
    ["any error", new TypeError("boom"), { code: "agent_error", message: "boom", retryable: true }],
  ])(
    "[FIN3] %s fails the run with code and message, without its stack",
    async (_, error, payload) => {
      const agent = defineAgent({
        name: unique("fails"),
        run: () => {
          throw error;
        },
      });
      const worker = await hosted([agent]);
      const ref = await startRun(broker, agent.name);
      const events = await ended(broker, ref);
      expect(events.at(-1)).toMatchObject({ type: "run.failed", payload });
      expect(JSON.stringify(events)).not.toContain("runs.test.ts");
      expect(worker.logged.join("\n")).toContain("runs.test.ts");
    },
  );

  it("[HOST8] a wrong input fails the run before the agent is executed", async () => {
    let executed = false;
    const agent = defineAgent({
      name: unique("strict"),
      input: (raw) => {
        if (typeof raw !== "number") throw new TypeError("a number is wanted");
        return raw;
      },
      run: () => {
        executed = true;
      },
    });
    await hosted([agent]);
    const events = await ended(broker, await startRun(broker, agent.name, { input: "x" }));
    expect(events.at(-1)?.payload).toEqual({
      code: "invalid_input",
      message: "a number is wanted",
      retryable: false,
    });
    expect(executed).toBe(false);
  });

  it("[FIN1][OPS2][OPS10] a failed step is told, and may be survived", async () => {
    const agent = defineAgent({
      name: unique("tries"),
      run: async (ctx) => {
        try {
          await ctx.step("risky", async (step) => {
            await step.message().write("half a sen");
            throw new AgentError("flaky", "not today", { retryable: true });
          });
        } catch (error) {
          return error instanceof AgentError ? error.code : "other";
        }
        return "fine";
      },
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    const events = await ended(broker, ref);
    const state = reduced(ref, events);
    expect(state.output).toBe("flaky");
    expect(state.steps[0]).toMatchObject({
      status: "failed",
      error: { code: "flaky", message: "not today", retryable: true },
    });
    // What the step left open is ended with it.
    expect(state.messages[0]).toMatchObject({
      text: "half a sen",
      status: "completed",
      finish_reason: "error",
    });
  });

  it("[OPS3] a step gives back the stored form of its output", async () => {
    const agent = defineAgent({
      name: unique("dates"),
      run: async (ctx) => {
        const { at } = await ctx.step("now", () => ({ at: new Date(0), gone: undefined }));
        return typeof at;
      },
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toBe("string");
  });

  it("[FIN7] an output that is no JSON fails the run and says so", async () => {
    const cyclic = defineAgent({
      name: unique("cyclic"),
      run: () => {
        const value: Record<string, unknown> = {};
        value["self"] = value;
        return value;
      },
    });
    await hosted([cyclic]);
    const second = await ended(broker, await startRun(broker, cyclic.name));
    expect(second.at(-1)?.payload).toMatchObject({ code: "invalid_output" });
  });

  it("[OPS11][FIN8] what is left unawaited ends no process and changes no ended run", async () => {
    const rejections: unknown[] = [];
    const note = (error: unknown): void => void rejections.push(error);
    process.on("unhandledRejection", note);
    const after = latch();
    const late = latch();
    const agent = defineAgent({
      name: unique("careless"),
      run: (ctx) => {
        void ctx.emit("a".repeat(300), 1);
        void ctx.emit("fine", 1);
        void ctx.message().write("never ended");
        void ctx.step("lost", async () => {
          await after.opened;
          await ctx.emit("too late", 1).catch(() => late.open());
          throw new Error("nobody hears it");
        });
        return "done";
      },
    });
    await hosted([agent]);
    const ref = await startRun(broker, agent.name);
    const events = await ended(broker, ref);
    after.open();
    await late.opened;
    await new Promise((resolve) => setImmediate(resolve));
    process.off("unhandledRejection", note);
    expect(rejections).toEqual([]);
    const state = reduced(ref, events);
    expect(state.status).toBe("completed");
    expect(state.messages[0]).toMatchObject({ text: "never ended", status: "completed" });
    expect(events.filter((e) => e.type === "custom").map((e) => e.payload)).toEqual([
      { name: "fine", value: 1 },
    ]);
    expect(await logOf(broker, ref)).toEqual(events);
  });
});
