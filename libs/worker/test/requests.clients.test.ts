import { type Broker, openBroker } from "@throughline/broker";
import { eventually, type NatsServer, seededRandom } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { type Agent, defineAgent, type ToolOutcome } from "../src/index.ts";
import {
  ended,
  logOf,
  reduced,
  startRun,
  startWorker,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";
import {
  clientTools,
  answersTo,
  clientCalls,
  inShort,
  ofType,
  openInput,
  send,
  stateOfRun,
  untilState,
  verdict,
} from "./requests-harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made));

const NAMES = ["one", "two", "three"] as const;

/** What of an outcome is not made by chance. */
function shown(outcome: ToolOutcome): unknown {
  const { name, id } = outcome;
  return [name, id, outcome.ok ? outcome.result : outcome.error.code];
}

/** Calls three client-side tools at once and tells of each outcome by a step, as soon as it is there. */
function calling(): Agent {
  return defineAgent({
    name: unique("calls"),
    run: async (ctx) => {
      const told: unknown[] = [];
      const calls = NAMES.map((name, index) => ({ name, args: { index }, id: `call ${index}` }));
      for await (const outcome of ctx.tools.call(calls)) {
        told.push(await ctx.step("after", () => shown(outcome)));
      }
      return told;
    },
  });
}

describe("tools that a client executes", () => {
  it("[TOOL1] are called at once, as one batch, and the run waits for them", async () => {
    const agent = calling();
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const calls = await clientCalls(broker, ref, 3);
    await untilState(broker, ref, (state) => state.status === "waiting_tools");
    const all = Object.values(calls);
    expect(all.map((c) => [c.name, c.args, c.executor, c.requires_approval, c.status])).toEqual(
      NAMES.map((name, index) => [name, { index }, "client", false, "pending"]),
    );
    expect(new Set(all.map((call) => call.batch_id)).size).toBe(1);
    expect(all[0]?.batch_id).toBeDefined();
  });

  it("[C16][TOOL2][CLM4] report in any order, one of them twice: each counts once, and the agent goes on after each", async () => {
    const random = seededRandom();
    for (let round = 0; round < 6; round++) {
      const agent = calling();
      await hosted(agent);
      const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
      const calls = await clientCalls(broker, ref, 3);
      const order = random.shuffle([...NAMES]);
      const twice = random.int(3);
      for (const [index, name] of order.entries()) {
        const report = { tool_call_id: calls[name]?.tool_call_id, result: `of ${name}` };
        const first = await verdict(broker, ref, "tool_result.report", report);
        expect(first.type).toBe("tool_call.completed");
        if (index === twice && index < 2) {
          const second = await verdict(broker, ref, "tool_result.report", {
            ...report,
            result: "again",
          });
          expect(second.payload).toMatchObject({
            code: "already_resolved",
            current: { status: "completed" },
          });
        }
        // The agent has acted on it while the others run.
        await untilState(broker, ref, (state) => state.steps.length > index || state.ended_at);
      }
      const events = await ended(broker, ref);
      expect(reduced(ref, events).output).toEqual(
        order.map((name) => [name, `call ${NAMES.indexOf(name)}`, `of ${name}`]),
      );
      expect(ofType(events, "tool_call.completed")).toHaveLength(3);
      expect(ofType(events, "step.completed")).toHaveLength(3);
    }
  });

  it("[CLM4][TOOL2] several outcomes in one frame come in the frame's order, errors too", async () => {
    const agent = calling();
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one, two, three } = await clientCalls(broker, ref, 3);
    const id = await send(broker, ref, "tool_result.report", {
      results: [
        { tool_call_id: three?.tool_call_id, result: 3 },
        { tool_call_id: one?.tool_call_id, error: { code: "no_luck", message: "sorry" } },
        { tool_call_id: three?.tool_call_id, result: "again" },
        { tool_call_id: two?.tool_call_id, result: null },
      ],
    });
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual([
      ["three", "call 2", 3],
      ["one", "call 0", "no_luck"],
      ["two", "call 1", null],
    ]);
    expect(events.filter((event) => event.reply_to === id).map(inShort)).toEqual([
      "tool_call.completed",
      "tool_call.failed",
      "already_resolved",
      "tool_call.completed",
    ]);
  });

  it("[REQ2][CLM3] of a hundred reports of one result that race one is taken, and there is one continuation", async () => {
    let continued = 0;
    const agent = defineAgent({
      name: unique("races"),
      run: async (ctx) => {
        const results: unknown[] = [];
        for await (const outcome of ctx.tools.call([{ name: "one", args: null }])) {
          continued += 1;
          results.push(outcome.ok ? outcome.result : outcome.error);
        }
        await ctx.ask({ prompt: "enough?" });
        return results;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one } = await clientCalls(broker, ref, 1);
    const other = await openBroker({ servers: [nats.url], name: "edge-2", shards: 2 });
    const ids = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        send(i % 2 ? broker : other, ref, "tool_result.report", {
          tool_call_id: one?.tool_call_id,
          result: i,
        }),
      ),
    );
    const { input_id } = await openInput(broker, ref);
    for (const id of ids) await answersTo(broker, ref, id);
    await send(broker, ref, "input.respond", { input_id, content: "yes" });
    const events = await ended(broker, ref);
    const verdicts = events.filter((event) => ids.includes(event.reply_to ?? "")).map(inShort);
    expect(verdicts.filter((one) => one === "tool_call.completed")).toHaveLength(1);
    expect(verdicts.filter((one) => one === "already_resolved")).toHaveLength(99);
    expect(continued).toBe(1);
    const [completed] = ofType(events, "tool_call.completed");
    expect(reduced(ref, events).output).toEqual([completed?.payload.result]);
    await other.close();
  });

  it("[TOOL8] a result too large for an event is kept as an object, and the agent sees it whole", async () => {
    const large = "x".repeat(200_000);
    const agent = defineAgent({
      name: unique("large"),
      run: async (ctx) => {
        let length = 0;
        for await (const outcome of ctx.tools.call([{ name: "one", args: null }])) {
          if (outcome.ok) length = String(outcome.result).length;
        }
        return length;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one } = await clientCalls(broker, ref, 1);
    await send(broker, ref, "tool_result.report", {
      tool_call_id: one?.tool_call_id,
      result: large,
    });
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toBe(200_000);
    const [completed] = ofType(events, "tool_call.completed");
    expect(completed?.payload.result).toMatchObject({ bytes: 200_002 });
  });
});

describe("a claim", () => {
  it("[CLM1][CLM3] keeps others from the call; with it the outcome counts", async () => {
    const agent = calling();
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one } = await clientCalls(broker, ref, 3);
    const tool_call_id = one?.tool_call_id;
    const claim = { tool_call_id, claim_id: "laptop" };
    const claimed = await verdict(broker, ref, "tool_call.claim", claim);
    expect(claimed.payload).toMatchObject({ status: "claimed", lease_ms: 30_000, by: "ann" });
    const phone = { tool_call_id, claim_id: "phone" };
    const refused = await verdict(broker, ref, "tool_call.claim", phone);
    expect(refused.payload).toMatchObject({ code: "not_allowed", current: { status: "claimed" } });
    const stranger = await verdict(broker, ref, "tool_result.report", { tool_call_id, result: 0 });
    expect(inShort(stranger)).toBe("not_allowed");
    const wrong = await verdict(broker, ref, "tool_result.report", { ...phone, result: 0 });
    expect(inShort(wrong)).toBe("stale");
    const renewed = await verdict(broker, ref, "tool_call.claim", { ...claim, lease_ms: 60_000 });
    expect(renewed.payload).toMatchObject({ status: "claimed", lease_ms: 60_000 });
    const right = await verdict(broker, ref, "tool_result.report", { ...claim, result: 1 });
    expect(right.type).toBe("tool_call.completed");
    const late = await verdict(broker, ref, "tool_call.claim", phone);
    expect(inShort(late)).toBe("already_resolved");
  });

  it("[CLM2][C32] that lapses is told, what comes with it is stale, and another device goes on", async () => {
    const agent = calling();
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one, two } = await clientCalls(broker, ref, 3);
    const lost = { tool_call_id: one?.tool_call_id, claim_id: "lost" };
    await verdict(broker, ref, "tool_call.claim", { ...lost, lease_ms: 1_000 });
    // A claim that is renewed does not lapse meanwhile.
    const kept = { tool_call_id: two?.tool_call_id, claim_id: "kept" };
    await verdict(broker, ref, "tool_call.claim", { ...kept, lease_ms: 1_000 });
    await verdict(broker, ref, "tool_call.claim", { ...kept, lease_ms: 60_000 });
    await untilState(broker, ref, (state) =>
      state.tool_calls.some((call) => call.name === "one" && call.status === "pending"),
    );
    const events = await logOf(broker, ref);
    const told = ofType(events, "tool_call.status").filter((e) => e.payload.status === "pending");
    expect(told.map((event) => event.payload)).toEqual([
      { tool_call_id: one?.tool_call_id, status: "pending" },
    ]);
    const stale = await verdict(broker, ref, "tool_result.report", { ...lost, result: "late" });
    expect(inShort(stale)).toBe("stale");
    const next = { tool_call_id: one?.tool_call_id, claim_id: "next" };
    await verdict(broker, ref, "tool_call.claim", next, { user: "bob" });
    const done = await verdict(
      broker,
      ref,
      "tool_result.report",
      { ...next, result: "done" },
      {
        user: "bob",
      },
    );
    expect(done.type).toBe("tool_call.completed");
    expect((await stateOfRun(broker, ref)).tool_calls.find((c) => c.name === "two")).toMatchObject({
      status: "claimed",
      claim: { claim_id: "kept" },
    });
  });

  it("[CLM2][C32] a report that was made before the lapse counts, though the worker was not there", async () => {
    const agent = calling();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one, two, three } = await clientCalls(broker, ref, 3);
    const calls = [one, two, three].map((call) => ({
      tool_call_id: call?.tool_call_id,
      claim_id: "cl",
    }));
    for (const call of calls) {
      await verdict(broker, ref, "tool_call.claim", { ...call, lease_ms: 1_000 });
    }
    const expires = (await stateOfRun(broker, ref)).tool_calls[1]?.claim?.expires_at ?? 0;
    await first.die();
    const inTime = await send(broker, ref, "tool_result.report", { ...calls[0], result: 1 });
    await eventually(() => Date.now() > expires + 50);
    const late = await send(broker, ref, "tool_result.report", { ...calls[1], result: 2 });
    await hosted(agent);
    expect((await answersTo(broker, ref, inTime)).map(inShort)).toEqual(["tool_call.completed"]);
    expect((await answersTo(broker, ref, late)).map(inShort)).toEqual(["stale"]);
    // Nobody had told that the third one's claim had lapsed: the next worker does.
    await untilState(broker, ref, (state) => state.tool_calls[2]?.status === "pending");
  });
});

describe("calls of clients over the run's life", () => {
  it("[REQ1][TOOL2] an agent that is executed again is told of outcomes in the order in which they came", async () => {
    const agent = calling();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one, two, three } = await clientCalls(broker, ref, 3);
    await verdict(broker, ref, "tool_result.report", {
      tool_call_id: three?.tool_call_id,
      result: 3,
    });
    await verdict(broker, ref, "tool_result.report", {
      tool_call_id: one?.tool_call_id,
      result: 1,
    });
    await untilState(broker, ref, (state) => state.steps.length === 2);
    await first.die();
    await send(broker, ref, "tool_result.report", { tool_call_id: two?.tool_call_id, result: 2 });
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual([
      ["three", "call 2", 3],
      ["one", "call 0", 1],
      ["two", "call 1", 2],
    ]);
    expect(ofType(events, "tool_call.created")).toHaveLength(3);
  });

  it("[TOOL6] a call that nobody answers fails after its time", async () => {
    const agent = defineAgent({
      name: unique("impatient"),
      run: async (ctx) => {
        const told: unknown[] = [];
        const calls = NAMES.map((name) => ({ name, args: null }));
        for await (const outcome of ctx.tools.call(calls, { timeoutMs: 500 })) {
          told.push([outcome.name, outcome.ok ? outcome.result : outcome.error]);
        }
        return told;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { two } = await clientCalls(broker, ref, 3);
    await send(broker, ref, "tool_result.report", { tool_call_id: two?.tool_call_id, result: 2 });
    const { output } = reduced(ref, await ended(broker, ref));
    const late = expect.objectContaining({ code: "tool_timeout", retryable: true });
    expect(output).toEqual([
      ["two", 2],
      ["one", late],
      ["three", late],
    ]);
  });

  it("[TOOL9][REQ4] an interrupt closes open calls; their outcome is that when the agent is executed again", async () => {
    const agent = calling();
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    const { one, two } = await clientCalls(broker, ref, 3);
    await verdict(broker, ref, "tool_result.report", {
      tool_call_id: two?.tool_call_id,
      result: 2,
    });
    await untilState(broker, ref, (state) => state.steps[0]?.status === "completed");
    await verdict(broker, ref, "run.interrupt", {});
    const late = await verdict(broker, ref, "tool_result.report", {
      tool_call_id: one?.tool_call_id,
      result: "late",
    });
    expect(late.payload).toMatchObject({ code: "already_resolved", current: { status: "failed" } });
    await send(broker, ref, "run.resume", {});
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual([
      ["two", "call 1", 2],
      ["one", "call 0", "interrupted"],
      ["three", "call 2", "interrupted"],
    ]);
    expect(typesOf(events).filter((type) => type === "tool_call.created")).toHaveLength(3);
  });

  it("[TOOL1] calls go on whether they are iterated or not, and an iteration left early leaves nothing behind", async () => {
    const agent = defineAgent({
      name: unique("leaves"),
      run: async (ctx) => {
        const told: unknown[] = [];
        const calls = NAMES.map((name) => ({ name, args: null }));
        const outcomes = ctx.tools.call(calls);
        ctx.tools.call([{ name: "one", args: "of nobody's interest" }]);
        for await (const outcome of outcomes) {
          told.push(shown(outcome));
          break;
        }
        await ctx.ask({ prompt: "go on?" });
        // From the first one again, the others by then.
        for await (const outcome of outcomes) told.push(shown(outcome));
        return told;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(NAMES) });
    await clientCalls(broker, ref, 4);
    const { tool_calls } = await stateOfRun(broker, ref);
    for (const { tool_call_id, name } of tool_calls) {
      await send(broker, ref, "tool_result.report", { tool_call_id, result: name });
    }
    const { input_id } = await openInput(broker, ref);
    await untilState(broker, ref, (state) =>
      state.tool_calls.every((c) => c.status === "completed"),
    );
    await send(broker, ref, "input.respond", { input_id, content: "yes" });
    const all = NAMES.map((name) => [name, undefined, name]);
    // JSON has no undefined.
    expect(reduced(ref, await ended(broker, ref)).output).toEqual(
      JSON.parse(JSON.stringify([all[0], ...all])),
    );
  });
});
