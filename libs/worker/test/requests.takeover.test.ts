import { type Broker, openBroker, type RunRef } from "@throughline/broker";
import type { DurableEvent, RunState } from "@throughline/protocol";
import { natsFilter, type NatsServer, startNats, tcpProxy } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Agent, defineAgent, defineTool } from "../src/index.ts";
import { ended, latch, reduced, startRun, startWorker, unique } from "./harness.ts";
import {
  answersTo,
  clientCalls,
  clientTools,
  ofType,
  openApproval,
  send,
  stateOfRun,
  untilState,
  verdict,
} from "./requests-harness.ts";

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

/** Asks for all that can be asked for: an approval, an input, and calls of every kind, some in a step. */
function asksForAll(): Agent {
  const lookUp = defineTool({
    name: "look-up",
    idempotent: true,
    run: (args) => ({ found: args }),
  });
  const pay = defineTool({
    name: "pay",
    idempotent: true,
    approval: { risk: "high" },
    run: () => "paid",
  });
  return defineAgent({
    name: unique("all"),
    tools: [lookUp, pay],
    run: async (ctx) => {
      const told: unknown[] = [];
      const { decision } = await ctx.approval({ operation: "begin", description: "all of it" });
      const calls = ["look-up", "browser", "editor"].map((name) => ({ name, args: { name } }));
      for await (const outcome of ctx.tools.call(calls)) {
        const { name } = outcome;
        told.push(await ctx.step(name, () => [name, outcome.ok ? outcome.result : outcome.error]));
      }
      const message = ctx.message();
      await message.write("so far, so good");
      await message.end();
      const answer = await ctx.ask({ prompt: "Go on?" });
      const paid = await ctx.step("pay", async (step) => {
        for await (const outcome of step.tools.call([{ name: "pay", args: { amount: 5 } }])) {
          return outcome.ok ? outcome.result : outcome.error.code;
        }
        return undefined;
      });
      // The order of outcomes is chance: what they are is not.
      const sorted = told.map((one) => JSON.stringify(one)).toSorted();
      return { decision, sorted, answer, paid };
    },
  });
}

/** Answers whatever is open until the run has ended, as devices do that reload now and then. */
async function answerAll(ref: RunRef): Promise<void> {
  const answered = new Set<string>();
  for (;;) {
    const state = await stateOfRun(broker, ref);
    if (state.ended_at !== undefined) return;
    for (const [id, answer] of openIn(ref, state)) {
      if (answered.has(id)) continue;
      answered.add(id);
      await answer();
    }
  }
}

function* openIn(ref: RunRef, state: RunState): Generator<[string, () => Promise<string>]> {
  for (const { approval_id, status } of state.approvals) {
    const payload = { approval_id, decision: "allow" };
    if (status === "open")
      yield [approval_id, () => send(broker, ref, "approval.respond", payload)];
  }
  for (const { input_id, status } of state.inputs) {
    const payload = { input_id, content: "yes" };
    if (status === "open") yield [input_id, () => send(broker, ref, "input.respond", payload)];
  }
  for (const { tool_call_id, name, executor, status } of state.tool_calls) {
    const payload = { tool_call_id, result: `from ${name}` };
    if (executor !== "client" || status !== "pending") continue;
    yield [tool_call_id, () => send(broker, ref, "tool_result.report", payload)];
  }
}

/** A run whose worker dies as soon as the event with that seq is stored. */
async function disturbed(dieAt: number): Promise<{ events: DurableEvent[]; state: RunState }> {
  const agent = asksForAll();
  const first = await startWorker(nats.url, [agent]);
  const ref = await startRun(broker, agent.name, { queued: clientTools(["browser", "editor"]) });
  const died = new Promise<void>((resolve) => {
    const live = broker.nc.subscribe(`tl.lv.*.*.*.${ref.run}.>`, {
      callback: (_, message) => {
        if (Number(message.headers?.get("Tl-Last")) < dieAt) return;
        live.unsubscribe();
        void first.die().then(resolve);
      },
    });
  });
  const answering = answerAll(ref);
  await died;
  const second = await startWorker(nats.url, [agent]);
  const events = await ended(broker, ref, 25_000);
  await answering;
  await second.stop();
  await second.die();
  return { events, state: reduced(ref, events) };
}

/** What is left of a state without times, attempts and what was superseded. */
function essence(state: RunState): unknown {
  return {
    status: state.status,
    output: state.output,
    approvals: state.approvals.map(({ operation, decision }) => [operation, decision]),
    inputs: state.inputs.map(({ prompt, content }) => [prompt, content]),
    calls: state.tool_calls.map(({ name, status, result }) => [name, status, result]),
    messages: state.messages.map(({ text, status }) => [text, status]),
    steps: state.steps
      .filter((step) => step.status !== "superseded")
      .map(({ name, status }) => `${name} ${status}`)
      .toSorted(),
  };
}

describe("a worker that dies", () => {
  it("[REQ1][REQ4][TOOL2][C18] at whichever event: the next one asks for nothing twice and ends with the same state", async () => {
    const agent = asksForAll();
    const worker = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name, { queued: clientTools(["browser", "editor"]) });
    await answerAll(ref);
    const calm = await ended(broker, ref);
    await worker.stop();
    await worker.die();
    const wanted = essence(reduced(ref, calm));
    expect(wanted).toMatchObject({ status: "completed", output: { paid: "paid", answer: "yes" } });

    const seqs = calm.map((event) => event.seq).slice(1, -1);
    let takeovers = 0;
    for (let i = 0; i < seqs.length; i += 8) {
      const portion = seqs.slice(i, i + 8);
      const runs = await Promise.all(portion.map((seq) => disturbed(seq)));
      for (const [index, { events, state }] of runs.entries()) {
        takeovers += ofType(events, "run.resumed").length;
        const where = `died at ${portion[index]}`;
        expect(essence(state), where).toEqual(wanted);
        expect(ofType(events, "approval.requested"), where).toHaveLength(2);
        expect(ofType(events, "input.requested"), where).toHaveLength(1);
        expect(ofType(events, "tool_call.created"), where).toHaveLength(4);
        expect(ofType(events, "tool_call.completed"), where).toHaveLength(4);
      }
    }
    // Of its last events some are stored in one go with the end.
    expect(takeovers).toBeGreaterThan(seqs.length - 4);
  }, 120_000);

  it("[CLM4] a report's answers are stored together: one whose worker dies is whole", async () => {
    const names = Array.from({ length: 60 }, (_, index) => `tool${index}`);
    const agent = defineAgent({
      name: unique("sixty"),
      run: async (ctx) => {
        let bytes = 0;
        for await (const outcome of ctx.tools.call(names.map((name) => ({ name, args: null })))) {
          if (outcome.ok) bytes += String(outcome.result).length;
        }
        return bytes;
      },
    });
    const proxy = await tcpProxy({ port: nats.port });
    let deaf = false;
    // Hears of no append, so what is to follow the first message is never sent.
    const filter = natsFilter(({ payload }) =>
      deaf && payload.toString().startsWith('{"stream":"TL_EV_') ? "drop" : "pass",
    );
    proxy.tap(filter.tap);
    const first = await startWorker(proxy.address, [agent]);
    const ref = await startRun(broker, agent.name, { queued: clientTools(names) });
    const calls = await clientCalls(broker, ref, names.length);
    await untilState(broker, ref, (state) => state.status === "waiting_tools");
    deaf = true;
    // Each is small, and all of them are as much as fits a frame.
    const results = names.map((name) => ({
      tool_call_id: calls[name]?.tool_call_id,
      result: "x".repeat(8_600),
    }));
    const id = await send(broker, ref, "tool_result.report", { results });
    expect(await answersTo(broker, ref, id)).toHaveLength(names.length);
    await first.die();
    const second = await startWorker(nats.url, [agent]);
    expect(reduced(ref, await ended(broker, ref)).output).toBe(names.length * 8_600);
    await Promise.all([first.stop(), second.stop()]);
    await second.die();
    proxy.close();
  });

  it("[EXE10] an approval that is given before the next worker's agent comes to it is not waited for", async () => {
    const loaded = latch();
    const worked = latch();
    const agent = defineAgent({
      name: unique("loads"),
      run: async (ctx) => {
        if (ctx.attempt > 1) await loaded.opened;
        await ctx.approval({ operation: "go", description: "on" });
        await ctx.step("work", () => worked.opened);
      },
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    await first.stop();
    await first.die();
    const second = await startWorker(nats.url, [agent]);
    await untilState(broker, ref, (state) => state.attempt === 2);
    await verdict(broker, ref, "approval.respond", { approval_id, decision: "allow" });
    await untilState(broker, ref, (state) => state.status === "running");
    loaded.open();
    await untilState(broker, ref, (state) => state.steps.length === 1);
    expect((await stateOfRun(broker, ref)).status).toBe("running");
    worked.open();
    expect(ofType(await ended(broker, ref), "run.status").map((e) => e.payload.status)).toEqual([
      "waiting_approval",
      "running",
    ]);
    await second.stop();
    await second.die();
  });
});
