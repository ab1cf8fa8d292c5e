import { type Broker, type RunRef } from "@throughline/broker";
import { eventually, natsFilter, type NatsServer, tcpProxy } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { type Agent, defineAgent, defineTool, type StepScope } from "../src/index.ts";
import {
  answered,
  command,
  ended,
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
const hosted = workshop((made) => ({ nats, broker } = made));

const never = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

/** Stops in its second step when it is executed for the first time; tells what each try of that step was given. */
function halting(given: (step: StepScope) => void, reached: () => void): Agent {
  let executions = 0;
  return defineAgent({
    name: unique("halting"),
    run: async (ctx) => {
      executions += 1;
      const first = await ctx.step("first", () => `by ${executions}`);
      const second = await ctx.step("second", async (step) => {
        given(step);
        const message = step.message();
        if (executions > 1) {
          await message.write("the rest");
          return executions;
        }
        await message.write("half a sen");
        await step.step("inner", async () => {
          reached();
          await never(ctx.signal);
        });
        return 0;
      });
      return { first, second };
    },
  });
}

/** Works in steps until it is told to end, or at once; each execution is counted for its run. */
function counting(over: { readonly waits?: boolean } = {}): {
  readonly agent: Agent;
  readonly executed: (ref: RunRef) => number;
} {
  const counts = new Map<string, number>();
  const agent = defineAgent({
    name: unique("counting"),
    run: async (ctx) => {
      counts.set(ctx.run_id, (counts.get(ctx.run_id) ?? 0) + 1);
      await ctx.step("works", async (step) => {
        await step.message().write("at work");
        if (over.waits) await step.inbox.next();
      });
      return "went on";
    },
  });
  return { agent, executed: ({ run }) => counts.get(run) ?? 0 };
}

/** After the pause nothing is stored but what answers commands: an agent that ran on would write. */
async function staysPaused(ref: RunRef, interrupt: string): Promise<void> {
  expect((await answered(broker, ref, interrupt)).type).toBe("run.interrupted");
  for (let n = 0; n < 3; n++) {
    const { id } = await command(broker, ref, "run.interrupt");
    expect(await answered(broker, ref, id)).toMatchObject({
      type: "command.rejected",
      payload: { code: "not_allowed", current: { status: "interrupted" } },
    });
  }
  const events = await logOf(broker, ref);
  const pause = events.findIndex((event) => event.type === "run.interrupted");
  expect(typesOf(events.slice(pause + 1))).toEqual(Array(3).fill("command.rejected"));
}

describe("run.interrupt", () => {
  it("[EXE1][EXE2][EXE3][C24] while streaming in a step: closes it, pauses, and the run goes on from there", async () => {
    const reached = latch();
    const given: (readonly string[])[] = [];
    const agent = halting(
      (step) => given.push(step.interrupted),
      () => reached.open(),
    );
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id } = await command(broker, ref, "run.interrupt", { reason: "wait", user: "bob" });
    const paused = await answered(broker, ref, id);
    expect(paused).toMatchObject({
      type: "run.interrupted",
      reply_by: "bob",
      payload: { reason: "wait", by: "bob", preserve_context: true },
    });
    const before = await logOf(broker, ref);
    expect(before.at(-1)).toEqual(paused);
    const state = reduced(ref, before);
    expect(state.status).toBe("interrupted");
    expect(state.steps.map((s) => [s.name, s.status, s.error?.code])).toEqual([
      ["first", "completed", undefined],
      ["second", "failed", "interrupted"],
      ["inner", "failed", "interrupted"],
    ]);
    expect(state.messages.map((m) => [m.text, m.status, m.finish_reason])).toEqual([
      ["half a sen", "completed", "interrupted"],
    ]);
    const resume = await command(broker, ref, "run.resume");
    const events = await ended(broker, ref);
    expect(events[before.length]).toMatchObject({
      type: "run.resumed",
      reply_to: resume.id,
      payload: { attempt: 1 },
    });
    const after = reduced(ref, events);
    expect(after.output).toEqual({ first: "by 1", second: 2 });
    expect(after.attempt).toBe(1);
    expect(given).toEqual([[], ["half a sen"]]);
    expect(after.messages.map((m) => m.text)).toEqual(["half a sen", "the rest"]);
    expect(new Set(after.steps.map((s) => s.step_id)).size).toBe(after.steps.length);
  });

  it("[EXE3] without its context, a step counts as never done", async () => {
    const reached = latch();
    const given: (readonly string[])[] = [];
    const agent = halting(
      (step) => given.push(step.interrupted),
      () => reached.open(),
    );
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id } = await command(broker, ref, "run.interrupt", {
      payload: { preserve_context: false },
    });
    await answered(broker, ref, id);
    const state = reduced(ref, await logOf(broker, ref));
    expect(state.steps.map((s) => s.status)).toEqual(["completed", "superseded", "superseded"]);
    expect(state.messages.map((m) => m.status)).toEqual(["superseded"]);
    await command(broker, ref, "run.resume");
    expect(reduced(ref, await ended(broker, ref)).output).toEqual({ first: "by 1", second: 2 });
    expect(given).toEqual([[], []]);
  });

  it("[EXE1] an agent that ignores its signal writes nothing more, and is executed again within 2 s", async () => {
    const reached = latch();
    const go = latch();
    const refused = latch();
    let executions = 0;
    const agent = defineAgent({
      name: unique("deaf"),
      run: async (ctx) => {
        const execution = ++executions;
        const message = ctx.message();
        await message.write(`execution ${execution}`);
        if (execution > 1) return execution;
        reached.open();
        await go.opened;
        await message.write(" late").catch(() => undefined);
        await ctx.emit("late", 1).catch(() => refused.open());
        return "as if nothing had happened";
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await command(broker, ref, "run.interrupt");
    await command(broker, ref, "run.resume");
    const events = await ended(broker, ref);
    go.open();
    await refused.opened;
    const state = reduced(ref, events);
    expect(state.output).toBe(2);
    expect(state.messages.map((m) => m.text)).toEqual(["execution 2"]);
    expect(typesOf(await logOf(broker, ref))).not.toContain("custom");
  });

  it("[EXE2][C24] while text flows: all that was written is stored before the pause, and none after it", async () => {
    const flowing = latch();
    let executions = 0;
    let written = 0;
    const agent = defineAgent({
      name: unique("flowing"),
      run: async (ctx) => {
        executions += 1;
        if (executions > 1) return written;
        const message = ctx.message();
        while (!ctx.signal.aborted) {
          await message.write("x");
          written += 1;
          if (written === 20) flowing.open();
          await new Promise((resolve) => setTimeout(resolve, 3));
        }
        return 0;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await flowing.opened;
    await answered(broker, ref, (await command(broker, ref, "run.interrupt")).id);
    await command(broker, ref, "run.resume");
    const events = await ended(broker, ref);
    const shown = reduced(ref, events);
    const pause = events.findIndex((e) => e.type === "run.interrupted");
    expect(shown.messages[0]?.text).toBe("x".repeat(written));
    expect(shown.output).toBe(written);
    expect(events.slice(pause).filter((e) => e.type === "model.chunk")).toEqual([]);
  });

  it("[EXE2] in a tool: the call fails as interrupted, and its key finds it", async () => {
    const reached = latch();
    const outcomes: unknown[] = [];
    const slow = defineTool({
      name: "slow",
      run: async (_, { signal }) => {
        reached.open();
        await never(signal);
      },
    });
    const agent = defineAgent({
      name: unique("tooled"),
      tools: [slow],
      run: async (ctx) => {
        for await (const outcome of ctx.tools.call([{ name: "slow", args: {} }])) {
          outcomes.push(outcome.ok ? "ok" : outcome.error.code);
        }
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id } = await command(broker, ref, "run.interrupt");
    await answered(broker, ref, id);
    const state = reduced(ref, await logOf(broker, ref));
    expect(state.tool_calls.map((c) => [c.status, c.error?.code])).toEqual([
      ["failed", "interrupted"],
    ]);
    await command(broker, ref, "run.resume");
    await ended(broker, ref);
    expect(outcomes.at(-1)).toBe("interrupted");
  });

  it("[EXE2] in an approval: it is denied as interrupted, and not asked again", async () => {
    const decisions: unknown[] = [];
    const agent = defineAgent({
      name: unique("asking"),
      run: async (ctx) => {
        const { decision, reason } = await ctx.approval({ operation: "x", description: "do x" });
        decisions.push([decision, reason]);
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await logged(broker, ref, (_, { status }) => status === "waiting_approval");
    const { id } = await command(broker, ref, "run.interrupt", { user: "bob" });
    await answered(broker, ref, id);
    expect(reduced(ref, await logOf(broker, ref)).approvals).toMatchObject([
      { status: "resolved", decision: "deny", reason: "interrupted", by: "bob" },
    ]);
    await command(broker, ref, "run.resume");
    const events = await ended(broker, ref);
    expect(decisions).toEqual([["deny", "interrupted"]]);
    expect(typesOf(events).filter((type) => type === "approval.requested")).toHaveLength(1);
  });

  it("[EXE2] an input request stays open, and is answered while the run is paused", async () => {
    const agent = defineAgent({
      name: unique("asking"),
      run: (ctx) => ctx.ask({ prompt: "your name?" }),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const asked = await logged(broker, ref, (_, { status }) => status === "waiting_input");
    const input = reduced(ref, asked).inputs[0];
    const interrupt = await command(broker, ref, "run.interrupt");
    await answered(broker, ref, interrupt.id);
    const { id } = await command(broker, ref, "input.respond", {
      payload: { input_id: input?.input_id, content: "Ann" },
    });
    expect((await answered(broker, ref, id)).type).toBe("input.received");
    expect(reduced(ref, await logOf(broker, ref)).status).toBe("interrupted");
    await command(broker, ref, "run.resume");
    expect(reduced(ref, await ended(broker, ref)).output).toBe("Ann");
  });

  it("[EXE4][C18] a paused run whose worker dies stays paused, and goes on by command alone", async () => {
    const reached = latch();
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("paused"),
      run: async (ctx) => {
        executed.push(`${ctx.attempt}`);
        if (executed.length === 1) {
          reached.open();
          await never(ctx.signal);
        }
        return ctx.attempt;
      },
    });
    const first = await hosted(agent, { name: "first" });
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id } = await command(broker, ref, "run.interrupt");
    await answered(broker, ref, id);
    await first.die();
    await hosted(agent, { name: "second" });
    await logged(broker, ref, (e) => e.type === "run.resumed" && e.payload.attempt === 2);
    const again = await command(broker, ref, "run.interrupt");
    expect(await answered(broker, ref, again.id)).toMatchObject({
      type: "command.rejected",
      payload: { code: "not_allowed", current: { status: "interrupted" } },
    });
    expect(executed).toEqual(["1"]);
    await command(broker, ref, "run.resume");
    const events = await ended(broker, ref);
    expect(executed).toEqual(["1", "2"]);
    expect(reduced(ref, events).output).toBe(2);
  });

  it("[EXE4] a worker that shuts down hands a paused run on at once", async () => {
    const reached = latch();
    const agent = defineAgent({
      name: unique("paused"),
      run: async (ctx) => {
        reached.open();
        await never(ctx.signal);
      },
    });
    const first = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await answered(broker, ref, (await command(broker, ref, "run.interrupt")).id);
    await first.stop();
    expect(first.active).toBe(0);
    expect(first.logged.join("\n")).not.toContain("did not end within the grace");
  });

  it("[EXE5] before a worker takes the run up, pauses it before its agent is executed", async () => {
    const { agent, executed } = counting();
    const refs = await Promise.all(Array.from({ length: 8 }, () => startRun(broker, agent.name)));
    const ids = await Promise.all(refs.map((ref) => command(broker, ref, "run.interrupt")));
    await hosted(agent);
    await Promise.all(
      refs.map(async (ref, index) => {
        await staysPaused(ref, ids[index]?.id ?? "");
        await command(broker, ref, "run.resume");
        expect(reduced(ref, await ended(broker, ref)).output).toBe("went on");
        // Only by the resumption: what was executed at any time before would have been counted too.
        expect(executed(ref)).toBe(1);
      }),
    );
  });

  it("[EXE5] right after the start, pauses it wherever it meets the worker", async () => {
    const { agent, executed } = counting({ waits: true });
    await hosted(agent);
    for (let ms = 0; ms <= 10; ms += 1) {
      const ref = await startRun(broker, agent.name);
      await new Promise((resolve) => setTimeout(resolve, ms));
      await staysPaused(ref, (await command(broker, ref, "run.interrupt")).id);
      const before = executed(ref);
      await command(broker, ref, "run.resume");
      await command(broker, ref, "run.continue", { payload: { content: "end" } });
      expect(reduced(ref, await ended(broker, ref)).output).toBe("went on");
      expect(executed(ref)).toBe(before + 1);
    }
  });

  it("[EXE5][CMDW7] while no worker has the run, pauses it before the next one executes its agent", async () => {
    const { agent, executed } = counting({ waits: true });
    const first = await hosted(agent, { name: "first" });
    const refs = await Promise.all(Array.from({ length: 4 }, () => startRun(broker, agent.name)));
    await Promise.all(refs.map((ref) => logged(broker, ref, (e) => e.type === "step.started")));
    await first.die();
    const ids = await Promise.all(refs.map((ref) => command(broker, ref, "run.interrupt")));
    await hosted(agent, { name: "second" });
    await Promise.all(
      refs.map(async (ref, index) => {
        await staysPaused(ref, ids[index]?.id ?? "");
        await command(broker, ref, "run.continue", { payload: { content: "end" } });
        expect(reduced(ref, await ended(broker, ref)).output).toBe("went on");
        expect(executed(ref)).toBe(2);
      }),
    );
  });

  it("[EXE6] that finds the agent at its end is refused, and the terminal stands", async () => {
    const interrupts: string[] = [];
    const agent = defineAgent({
      name: unique("quick"),
      run: async (ctx) => {
        // Stored before the agent returns; its live copy never comes.
        const ref = { tenant: "acme", session: ctx.session_id, run: ctx.run_id };
        interrupts.push((await command(broker, ref, "run.interrupt")).id);
        return "done";
      },
    });
    const proxy = await tcpProxy({ port: nats.port });
    const filter = natsFilter((m) => (m.subject.startsWith("tl.cl.") ? "drop" : "pass"));
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    const ref = await startRun(broker, agent.name);
    const events = await ended(broker, ref);
    expect(events.slice(-2)).toMatchObject([
      {
        type: "command.rejected",
        reply_to: interrupts[0],
        payload: { code: "not_allowed", current: { status: "running" } },
      },
      { type: "run.completed", payload: { output: "done" } },
    ]);
    expect(filter.dropped).toBe(1);
    await worker.stop();
    await worker.die();
    proxy.close();
  });

  it("[EXE7] a paused run can be cancelled, and fails at its deadline", async () => {
    const agent = defineAgent({ name: unique("idle"), run: (ctx) => never(ctx.signal) });
    await hosted(agent);
    const one = await startRun(broker, agent.name);
    await logged(broker, one, (e) => e.type === "run.started");
    await command(broker, one, "run.interrupt");
    await command(broker, one, "run.cancel");
    expect((await ended(broker, one)).at(-1)?.type).toBe("run.cancelled");
    const two = await startRun(broker, agent.name, { deadlineMs: 2_000 });
    await logged(broker, two, (e) => e.type === "run.started");
    await command(broker, two, "run.interrupt");
    expect((await ended(broker, two)).at(-1)?.payload).toMatchObject({ code: "deadline" });
  });

  it("[EXE4][FIN6] one that comes while its worker hands the run on is for the next worker", async () => {
    const reached = latch();
    const agent = defineAgent({
      name: unique("deaf"),
      run: async (ctx) => {
        reached.open();
        // Ignores its signal: so its worker is handing the run on for two seconds.
        await (ctx.attempt === 1 ? new Promise(() => undefined) : never(ctx.signal));
      },
    });
    const first = await startWorker(nats.url, [agent], { graceMs: 0 });
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const stopped = first.stop();
    await eventually(() => first.logged.some((line) => line.includes("did not end within")));
    const { id } = await command(broker, ref, "run.interrupt");
    await stopped;
    await hosted(agent);
    expect((await answered(broker, ref, id)).type).toBe("run.interrupted");
    await command(broker, ref, "run.cancel");
    await ended(broker, ref);
    await first.die();
  });

  it("[EXE5] one that is read before the first event is known to be stored comes before the agent", async () => {
    let executions = 0;
    const agent = defineAgent({ name: unique("late"), run: () => (executions += 1) });
    const ref = await startRun(broker, agent.name);
    const { id } = await command(broker, ref, "run.interrupt");
    const proxy = await tcpProxy({ port: nats.port });
    let holding = true;
    const filter = natsFilter(({ payload }) =>
      holding && payload.toString().startsWith('{"stream":"TL_EV_') ? "hold" : "pass",
    );
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    await eventually(() => filter.held > 0);
    // By an answer that comes after those to whatever the worker has asked for until now.
    await eventually(() => worker.broker.runs.list(ref));
    holding = false;
    filter.release();
    expect((await answered(broker, ref, id)).type).toBe("run.interrupted");
    expect(executions).toBe(0);
    await command(broker, ref, "run.resume");
    expect(reduced(ref, await ended(broker, ref)).output).toBe(1);
    await worker.stop();
    await worker.die();
    proxy.close();
  });
});
