import {
  type Broker,
  BrokerUnavailable,
  isArtifactRef,
  offload,
  resolve,
} from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import { eventually, natsFilter, type NatsServer, tcpProxy } from "@throughline/testkit";
import { describe, expect, it, vi } from "vitest";
import { type Agent, AgentError, defineAgent } from "../src/index.ts";
import { seedEvents } from "../src/retry-seed.ts";
import { stateOf, stepCompleted, stepStarted } from "./events.ts";
import {
  answered,
  command,
  ended,
  freshRef,
  latch,
  logged,
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
const hosted = workshop((made) => ({ nats, broker } = made), { graceMs: 100 });

const inSession = (session: string): ReturnType<typeof freshRef> => ({ ...freshRef(), session });

describe("ctx.session.history", () => {
  it("[PAST2][PAST3] knows each run whose end was seen when this one was started", async () => {
    const agent = defineAgent({
      name: unique("talks"),
      run: async (ctx) => {
        const past = await ctx.session.history(3);
        const message = ctx.message();
        await message.write(`answer to ${String(ctx.input)}`);
        await message.end();
        if (ctx.input === "bad") throw new AgentError("no", "no");
        return past.map((run) => [run.input, run.status, run.output, run.messages[0]?.text]);
      },
    });
    await hosted(agent);
    const { session } = freshRef();
    const run = async (input: string): Promise<RunState> => {
      const ref = await startRun(broker, agent.name, { ref: inSession(session), input });
      return reduced(ref, await ended(broker, ref));
    };
    // Each is started as soon as the end of the one before is in the log.
    expect((await run("one")).output).toEqual([]);
    expect((await run("two")).output).toEqual([["one", "completed", [], "answer to one"]]);
    await run("bad");
    const last = await run("four");
    expect(last.output).toMatchObject([
      ["one", "completed", [], "answer to one"],
      ["two", "completed", [["one", "completed", [], "answer to one"]], "answer to two"],
      ["bad", "failed", null, "answer to bad"],
    ]);
    const listed = async (): Promise<unknown[]> =>
      (await broker.runs.list({ tenant: "acme", session })).map((entry) => entry.status);
    await eventually(async () => (await listed())[0] === "completed");
    expect(await listed()).toEqual(["completed", "failed", "completed", "completed"]);
  });

  it("[PAST2] leaves out what tries had shown that then failed", async () => {
    const agent = defineAgent({
      name: unique("flaky"),
      run: async (ctx) => {
        const past = await ctx.session.history();
        let tries = 0;
        await ctx.step(
          "answer",
          async (step) => {
            tries += 1;
            await step.message().write(`try ${tries}`);
            if (tries < 3) throw new AgentError("cut", "cut off", { retryable: true });
          },
          { retries: 2, backoffMs: 1 },
        );
        return past.map(({ messages }) => messages.map(({ text }) => text));
      },
    });
    await hosted(agent);
    const { session } = freshRef();
    const run = async (): Promise<RunState> =>
      reduced(
        ...(await startRun(broker, agent.name, { ref: inSession(session) }).then(
          async (ref) => [ref, await ended(broker, ref)] as const,
        )),
      );
    await run();
    expect((await run()).output).toEqual([["try 3"]]);
  });

  it("[PAST2] leaves out what had not ended, and is the same when it is asked again", async () => {
    const hold = latch();
    const slow = defineAgent({ name: unique("slow"), run: () => hold.opened.then(() => "slow") });
    const asked: unknown[] = [];
    const agent = defineAgent({
      name: unique("asks"),
      run: async (ctx) => {
        asked.push((await ctx.session.history()).map((run) => run.output));
        hold.open();
        await eventually(async () => {
          const runs = await broker.runs.list({ tenant: "acme", session: ctx.session.id });
          return runs.some((run) => run.agent === slow.name && run.status === "completed");
        });
        asked.push((await ctx.session.history()).map((run) => run.output));
      },
    });
    await hosted([slow, agent]);
    const { session } = freshRef();
    const first = await startRun(broker, slow.name, { ref: inSession(session) });
    await logged(broker, first, (e) => e.type === "run.started");
    await ended(broker, await startRun(broker, agent.name, { ref: inSession(session) }));
    expect(asked).toEqual([[], []]);
  });
});

describe("a repetition", () => {
  /** Counts what it executes; fails in its last step the first time. */
  const failing = (executed: string[]): Agent =>
    defineAgent({
      name: unique("fails"),
      run: async (ctx) => {
        const done = (name: string): string => {
          executed.push(name);
          return `done ${name}`;
        };
        const one = await ctx.step("one", () => done("one"));
        const two = await ctx.step("two", (step) => step.step("inner", () => done("inner")));
        await ctx.step("three", () => {
          executed.push("three");
          if (executed.filter((name) => name === "three").length === 1) throw new Error("no");
        });
        return [one, two];
      },
    });

  it("[PAST1] of a failed run keeps its completed steps", async () => {
    const executed: string[] = [];
    const agent = failing(executed);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await ended(broker, ref);
    executed.push("—");
    const again = await startRun(broker, agent.name, {
      ref: inSession(ref.session),
      queued: { retry_of: ref.run },
    });
    const state = reduced(again, await ended(broker, again));
    expect(executed).toEqual(["one", "inner", "three", "—", "three"]);
    expect(state.output).toEqual(["done one", "done inner"]);
    expect(state.steps.map((s) => [s.key, s.status])).toEqual([
      ["one#1", "completed"],
      ["two#1", "completed"],
      ["two#1/inner#1", "completed"],
      ["three#1", "completed"],
    ]);
    expect(state.steps[2]?.parent_step_id).toBe(state.steps[1]?.step_id);
  });

  it("[PAST1] has its copies once, whatever workers come and go", async () => {
    const executed: string[] = [];
    const agent = failing(executed);
    const idle = defineAgent({ name: unique("idle"), run: () => 1 });
    const first = await hosted([agent, idle]);
    const ref = await startRun(broker, agent.name);
    await ended(broker, ref);
    const again = await startRun(broker, agent.name, {
      ref: inSession(ref.session),
      queued: { retry_of: ref.run },
    });
    await logged(broker, again, (e) => e.type === "run.started");
    await first.die();
    await hosted(agent);
    const events = await ended(broker, again);
    const state = reduced(again, events);
    expect(state.output).toEqual(["done one", "done inner"]);
    expect(events.filter((e) => e.type === "step.started" && e.key === "one#1")).toHaveLength(1);
  });

  it("[PAST1] of a run that is not kept begins at nothing", async () => {
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("anew"),
      run: (ctx) => ctx.step("one", () => executed.push("one")),
    });
    const worker = await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: { retry_of: "run_gone" } });
    expect(reduced(ref, await ended(broker, ref)).output).toBe(1);
    expect(worker.logged.join("\n")).toContain("begins at nothing");
  });

  it("[PAST1] keeps what comes before `from_step`, and no step that it is part of", () => {
    const old = stateOf(
      stepStarted("s1", "one#1"),
      stepCompleted("s1", 1),
      stepStarted("s2", "two#1"),
      stepStarted("s3", "two#1/a#1", "s2"),
      stepCompleted("s3", 3),
      stepStarted("s4", "two#1/b#1", "s2"),
      stepCompleted("s4", 4),
      stepCompleted("s2", 2),
      stepStarted("s5", "three#1"),
      stepCompleted("s5", 5),
    );
    const keys = (from?: string): unknown[] =>
      seedEvents(old, from).flatMap((e) => (e.type === "step.started" ? [e.key] : []));
    expect(keys()).toEqual(["one#1", "two#1", "two#1/a#1", "two#1/b#1", "three#1"]);
    expect(keys("s5")).toEqual(["one#1", "two#1", "two#1/a#1", "two#1/b#1"]);
    expect(keys("s4")).toEqual(["one#1", "two#1/a#1"]);
    expect(keys("s2")).toEqual(["one#1"]);
    expect(keys("s1")).toEqual([]);
  });

  it("[PAST1] has each copy once, though a worker dies between two messages of them", async () => {
    const names = Array.from({ length: 60 }, (_, index) => `step${index}`);
    const agent = defineAgent({
      name: unique("long"),
      run: async (ctx) => {
        for (const name of names) await ctx.step(name, () => "y".repeat(20_000));
      },
    });
    const before = await hosted(agent);
    const old = await startRun(broker, agent.name);
    await ended(broker, old);
    await before.stop();
    const proxy = await tcpProxy({ port: nats.port });
    let deaf = false;
    const filter = natsFilter(({ payload }) =>
      deaf && payload.toString().startsWith('{"stream":"TL_EV_') ? "drop" : "pass",
    );
    proxy.tap(filter.tap);
    const first = await startWorker(proxy.address, [agent]);
    const { snapshots } = first.broker;
    const read = snapshots.read.bind(snapshots);
    snapshots.read = async (...asked) => {
      const snapshot = await read(...asked);
      deaf = true;
      return snapshot;
    };
    const ref = await startRun(broker, agent.name, {
      ref: inSession(old.session),
      queued: { retry_of: old.run },
    });
    await logged(broker, ref, (event) => event.type === "step.completed");
    await first.die();
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(typesOf(events)).toContain("run.resumed");
    expect(typesOf(events).filter((type) => type === "step.completed")).toHaveLength(names.length);
    await first.stop();
    proxy.close();
  });

  it("[PAST1] has its copies before a command is judged", async () => {
    const agent = defineAgent({ name: unique("short"), run: (ctx) => ctx.step("a", () => 1) });
    const worker = await hosted(agent);
    const old = await startRun(broker, agent.name);
    await ended(broker, old);
    const asked = latch();
    const goOn = latch();
    const { snapshots } = worker.broker;
    const read = snapshots.read.bind(snapshots);
    snapshots.read = async (...about) => {
      asked.open();
      await goOn.opened;
      return read(...about);
    };
    const ref = await startRun(broker, agent.name, {
      ref: inSession(old.session),
      queued: { retry_of: old.run },
    });
    await asked.opened;
    const { id } = await command(broker, ref, "run.interrupt");
    goOn.open();
    await answered(broker, ref, id);
    await command(broker, ref, "run.resume");
    const types = typesOf(await ended(broker, ref));
    expect(types.indexOf("memory.updated")).toBeLessThan(types.indexOf("run.interrupted"));
    expect(types.filter((type) => type === "step.started")).toHaveLength(1);
  });
});

describe("large values", () => {
  it("[PAST4] go through the object store, and agents see them whole", async () => {
    const large = "x".repeat(700_000);
    const seen: number[] = [];
    const reached = latch();
    const agent = defineAgent({
      name: unique("large"),
      run: async (ctx) => {
        seen.push(String(ctx.input).length);
        const output = await ctx.step("big", () => `${large}${ctx.attempt}`);
        seen.push(output.length);
        if (ctx.attempt === 1) {
          reached.open();
          await new Promise((resolved) => ctx.signal.addEventListener("abort", resolved));
        }
        return output;
      },
    });
    const first = await hosted(agent);
    const ref = freshRef();
    const input = await offload(broker.objects, ref, large);
    expect(isArtifactRef(input)).toBe(true);
    await startRun(broker, agent.name, { ref, input });
    await reached.opened;
    await first.die();
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(seen).toEqual([700_000, 700_001, 700_000, 700_001]);
    const { output, steps } = reduced(ref, events);
    expect(isArtifactRef(steps[0]?.output)).toBe(true);
    expect(await resolve(broker.objects, ref, output)).toBe(`${large}1`);
    expect(typesOf(await logOf(broker, ref))).not.toContain("run.failed");
  });

  it("[PAST4] one that cannot be read for a while is waited for, however long, and fails nothing", async () => {
    const agent = defineAgent({
      name: unique("patient"),
      run: ({ input }) => String(input).length,
    });
    const { broker: own } = await hosted(agent);
    const ref = freshRef();
    const input = await offload(broker.objects, ref, "x".repeat(200_000));
    const get = vi.spyOn(own.objects, "get").mockImplementationOnce(async () => {
      // What the object store itself waits is over by then.
      vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 21_000 });
      throw new BrokerUnavailable("away");
    });
    try {
      await startRun(broker, agent.name, { ref, input, deadlineMs: 120_000 });
      expect(reduced(ref, await ended(broker, ref)).output).toBe(200_000);
      expect(get).toHaveBeenCalledTimes(2);
    } finally {
      vi.useRealTimers();
    }
  });
});
