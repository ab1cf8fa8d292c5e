/** What a repetition keeps besides steps. */
import { type Broker, type RunRef } from "@throughline/broker";
import type { NewEvent, RunState } from "@throughline/protocol";
import { describe, expect, it } from "vitest";
import { defineAgent, defineTool, type Scope, type Tool } from "../src/index.ts";
import { seedEvents } from "../src/retry-seed.ts";
import { stateOf, stepCompleted, stepStarted } from "./events.ts";
import {
  answered,
  command,
  ended,
  freshRef,
  latch,
  logged,
  reduced,
  startRun,
  unique,
  workshop,
} from "./harness.ts";
import { openApproval, openInput, send } from "./requests-harness.ts";

let broker: Broker;
const hosted = workshop((made) => ({ broker } = made), { graceMs: 100 });

async function repeated(old: RunRef, agent: string, fromStep?: string): Promise<RunState> {
  const from = fromStep === undefined ? {} : { from_step: fromStep };
  const ref = await startRun(broker, agent, {
    ref: { ...freshRef(), session: old.session },
    queued: { retry_of: old.run, ...from },
  });
  return reduced(ref, await ended(broker, ref));
}

/** Notes each execution. */
const noting = (executed: string[], fails: (note: string) => boolean = () => false): Tool =>
  defineTool({
    name: "do",
    run: (args) => {
      const note = String(args);
      executed.push(note);
      if (fails(note)) throw new Error("no");
      return `did ${note}`;
    },
  });

async function did({ tools }: Pick<Scope, "tools">, ...args: string[]): Promise<unknown[]> {
  const results: unknown[] = [];
  for await (const outcome of tools.call(args.map((one) => ({ name: "do", args: one })))) {
    results[outcome.index] = outcome.ok ? outcome.result : outcome.error.code;
  }
  return results;
}

const once = (executed: readonly string[], note: string): boolean =>
  executed.filter((one) => one === note).length === 1;

describe("a repetition", () => {
  it("[PAST5] makes no call again that was completed, and those that had failed", async () => {
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("calls"),
      tools: [noting(executed, (note) => note === "b" && once(executed, "b"))],
      run: async (ctx) => {
        await ctx.step("one", () => executed.push("one"));
        const results = await did(ctx, "a", "b");
        await ctx.step("two", async (step) => {
          results.push(...(await did(step, "inside")));
          executed.push("two");
          if (once(executed, "two")) throw new Error("no");
        });
        return results;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await ended(broker, ref);
    expect(executed).toEqual(["one", "a", "b", "inside", "two"]);
    const state = await repeated(ref, agent.name);
    expect(state.output).toEqual(["did a", "did b", "did inside"]);
    expect(executed.slice(5)).toEqual(["b", "two"]);
    expect(state.tool_calls.map((call) => [call.key, call.args, call.status])).toEqual([
      ["@tool#1", "a", "completed"],
      ["two#1/@tool#1", "inside", "completed"],
      ["@tool#2", "b", "completed"],
    ]);
  });

  it("[PAST5] keeps the calls that were completed before `from_step`, and makes later ones again", async () => {
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("from"),
      tools: [noting(executed)],
      run: async (ctx) => {
        await ctx.step("one", () => executed.push("one"));
        await did(ctx, "a");
        await ctx.step("two", () => executed.push("two"));
        await did(ctx, "b");
        await ctx.step("three", () => executed.push("three"));
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const old = reduced(ref, await ended(broker, ref));
    executed.length = 0;
    expect((await repeated(ref, agent.name, old.steps[1]?.step_id)).status).toBe("completed");
    expect(executed).toEqual(["two", "b", "three"]);
  });

  it("[PAST5] gives a kept result to no call with other arguments", async () => {
    const executed: string[] = [];
    let runs = 0;
    const agent = defineAgent({
      name: unique("other"),
      tools: [noting(executed)],
      run: async (ctx) => {
        const arg = `of ${++runs}`;
        const results = await did(ctx, arg);
        if (runs === 1) throw new Error("no");
        return results;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await ended(broker, ref);
    expect((await repeated(ref, agent.name)).output).toEqual(["did of 2"]);
  });

  it("[PAST6] asks nothing again that the kept part depends on, and knows its instructions", async () => {
    const go = latch();
    let tries = 0;
    const agent = defineAgent({
      name: unique("asks"),
      run: async (ctx) => {
        const { decision } = await ctx.approval({ operation: "x", description: "x" });
        const place = await ctx.ask({ prompt: "Where?" });
        await go.opened;
        const heard = await ctx.inbox.take();
        const inside = await ctx.step("kept", async (step) => (await step.inbox.take()).length);
        await ctx.step("fails", () => {
          if (++tries === 1) throw new Error("no");
        });
        const said = heard.map(({ content, by }) => [content, by]);
        return [decision, place, said, inside, (await ctx.inbox.take()).length];
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const approval = await openApproval(broker, ref);
    await send(
      broker,
      ref,
      "approval.respond",
      { approval_id: approval.approval_id, decision: "allow" },
      { reply_to: approval.event_id },
    );
    const input = await openInput(broker, ref);
    await send(
      broker,
      ref,
      "input.respond",
      { input_id: input.input_id, content: "here" },
      { reply_to: input.event_id },
    );
    await logged(broker, ref, (e) => e.type === "input.received");
    const { id } = await command(broker, ref, "run.continue", { payload: { content: "more" } });
    await answered(broker, ref, id);
    go.open();
    await ended(broker, ref);
    const state = await repeated(ref, agent.name);
    expect(state.output).toEqual(["allow", "here", [["more", "ann"]], 0, 0]);
    expect(tries).toBe(2);
  });

  it("[PAST6] asks again about what was allowed and not done, and lets untaken instructions be taken", () => {
    const asked = (id: string): NewEvent => ({
      type: "approval.requested",
      key: `@approval#${id}`,
      payload: {
        approval_id: id,
        operation: "x",
        description: "x",
        risk_level: "low",
        args_hash: "h",
        expires_at: 1,
        default: "deny",
      },
    });
    const allowed = (id: string): NewEvent => ({
      type: "approval.resolved",
      payload: { approval_id: id, decision: "allow", by: "ann" },
    });
    const said = (content: string): NewEvent => ({
      type: "input.received",
      payload: { content, queued: true },
    });
    const look = (of: string, taken: number[], after: number): NewEvent => ({
      type: "memory.updated",
      payload: { key: `@inbox/${of}#1`, value: { taken, after } },
    });
    const old = stateOf(
      asked("1"),
      allowed("1"),
      said("first"),
      stepStarted("s1", "one#1"),
      look("s1", [0], 5),
      stepCompleted("s1", 1),
      asked("2"),
      allowed("2"),
      said("second"),
      stepStarted("s2", "two#1"),
      look("s2", [1], 11),
      { type: "step.failed", step_id: "s2", payload: { step_id: "s2", error: failure } },
    );
    const events = seedEvents(old, undefined);
    const of = (type: string): NewEvent[] => events.filter((event) => event.type === type);
    expect(of("approval.requested").map(({ key }) => key)).toEqual(["@approval#1"]);
    expect(of("input.received").map(({ payload }) => payload)).toMatchObject([
      { content: "first" },
      { content: "second" },
    ]);
    const step = of("step.started")[0]?.step_id;
    expect(of("memory.updated").map(({ payload }) => payload)).toEqual([
      { key: `@inbox/${step}#1`, value: { taken: [0], after: 0 } },
    ]);
    // Before the second step nothing else was said.
    expect(seedEvents(old, "s1").filter((e) => e.type === "input.received")).toHaveLength(1);
  });
});

const failure = { code: "no", message: "no", retryable: false };
