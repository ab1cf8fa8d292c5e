import { type Broker } from "@throughline/broker";
import { natsFilter, type NatsServer, tcpProxy } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { defineAgent, type Instruction } from "../src/index.ts";
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
  unique,
  workshop,
} from "./harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made), { graceMs: 100 });

type Ref = Parameters<typeof logOf>[1];
const say = (ref: Ref, content: string): Promise<{ id: string }> =>
  command(broker, ref, "run.continue", { payload: { content } });
const texts = (items: readonly Instruction[]): unknown[] => items.map((item) => item.content);
const never = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

describe("run.continue", () => {
  it("[EXE8][EXE9] of a busy run waits in its inbox, and each is seen once", async () => {
    const go = latch();
    const agent = defineAgent({
      name: unique("busy"),
      run: async (ctx) => {
        const before = await ctx.inbox.take();
        await go.opened;
        const there = await ctx.inbox.take();
        return [texts(before), texts(there), texts(await ctx.inbox.take()), there[0]?.by];
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await logged(broker, ref, (e) => e.type === "memory.updated");
    const { id } = await say(ref, "one");
    expect(await answered(broker, ref, id)).toMatchObject({
      type: "input.received",
      payload: { content: "one", by: "ann", queued: true },
    });
    await answered(broker, ref, (await say(ref, "two")).id);
    go.open();
    expect(reduced(ref, await ended(broker, ref)).output).toEqual([[], ["one", "two"], [], "ann"]);
  });

  it("[EXE8][EXE10] is seen at once by an agent that waits for it", async () => {
    const agent = defineAgent({
      name: unique("waits"),
      run: async (ctx) => [(await ctx.inbox.next()).content, (await ctx.inbox.next()).content],
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await logged(broker, ref, (_, { status }) => status === "waiting_input");
    const { id } = await say(ref, "one");
    expect(await answered(broker, ref, id)).toMatchObject({ payload: { queued: false } });
    await say(ref, "two");
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual(["one", "two"]);
    const told = events.flatMap((e) => (e.type === "run.status" ? [e.payload.status] : []));
    expect(told.slice(0, 2)).toEqual(["waiting_input", "running"]);
    expect(told.length % 2).toBe(0);
  });

  it("[EXE9] is not taken by a step that has ended without it", async () => {
    const left = latch();
    const agent = defineAgent({
      name: unique("leaves"),
      run: async (ctx) => {
        await ctx.step("looks", async (step) => {
          const next = step.inbox.next();
          await Promise.race([next, ctx.step("beside", () => undefined)]);
        });
        left.open();
        return (await ctx.inbox.next()).content;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await left.opened;
    await say(ref, "one");
    expect(reduced(ref, await ended(broker, ref)).output).toBe("one");
  });

  it("[EXE8] of a paused run resumes it, in one message of the log", async () => {
    let executions = 0;
    const reached = latch();
    const agent = defineAgent({
      name: unique("paused"),
      run: async (ctx) => {
        executions += 1;
        const items = await ctx.inbox.take();
        if (executions > 1) return [texts(items), texts(await ctx.inbox.take())];
        reached.open();
        return never(ctx.signal);
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await command(broker, ref, "run.interrupt");
    const { id } = await say(ref, "rather this");
    const events = await ended(broker, ref);
    const at = events.findIndex((e) => e.reply_to === id);
    expect(events.slice(at, at + 2)).toMatchObject([
      { type: "input.received", payload: { queued: false } },
      { type: "run.resumed", payload: { attempt: 1 } },
    ]);
    // The first look had found nothing, and finds nothing again.
    expect(reduced(ref, events).output).toEqual([[], ["rather this"]]);
  });

  it("[EXE9] what was taken before a takeover is found at the same places after it", async () => {
    const reached = latch();
    const executed: unknown[] = [];
    const agent = defineAgent({
      name: unique("durable"),
      run: async (ctx) => {
        const seen = [
          (await ctx.inbox.next()).content,
          await ctx.step("in a step", async (step) => texts(await step.inbox.take())),
          texts(await ctx.inbox.take()),
        ];
        executed.push(seen);
        reached.open();
        if (ctx.attempt === 1) await never(ctx.signal);
        return [...seen, texts(await ctx.inbox.take())];
      },
    });
    const first = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await say(ref, "one");
    await reached.opened;
    await answered(broker, ref, (await say(ref, "late")).id);
    await first.die();
    await hosted(agent);
    const { output } = reduced(ref, await ended(broker, ref));
    expect(output).toEqual(["one", [], [], ["late"]]);
    expect(executed[1]).toEqual(executed[0]);
  });

  it("[EXE11] that was accepted before the agent looks is found, even if its worker has not heard of it", async () => {
    const agent = defineAgent({
      name: unique("last-look"),
      run: async (ctx) => {
        // Stored before the look; its live copy never comes.
        const ref = { tenant: "acme", session: ctx.session_id, run: ctx.run_id };
        await say(ref, "one more thing");
        const atRun = texts(await ctx.inbox.take());
        await say(ref, "and another");
        return [atRun, await ctx.step("look", async (step) => texts(await step.inbox.take()))];
      },
    });
    const proxy = await tcpProxy({ port: nats.port });
    const filter = natsFilter((m) => (m.subject.startsWith("tl.cl.") ? "drop" : "pass"));
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    const ref = await startRun(broker, agent.name);
    const { output } = reduced(ref, await ended(broker, ref));
    expect(output).toEqual([["one more thing"], ["and another"]]);
    expect(filter.dropped).toBe(2);
    await worker.stop();
    await worker.die();
    proxy.close();
  });

  it("[EXE6] that comes after the agent's end is refused, and not left in the inbox", async () => {
    const ids: string[] = [];
    const agent = defineAgent({
      name: unique("ending"),
      run: async (ctx) => {
        const ref = { tenant: "acme", session: ctx.session_id, run: ctx.run_id };
        await ctx.inbox.take();
        ids.push((await say(ref, "too late")).id);
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
      { type: "command.rejected", reply_to: ids[0], payload: { code: "not_allowed" } },
      { type: "run.completed" },
    ]);
    expect(reduced(ref, events).inbox).toEqual([]);
    await worker.stop();
    await worker.die();
    proxy.close();
  });

  it("[EXE9] a step that is done again takes again what it had taken", async () => {
    let tries = 0;
    const agent = defineAgent({
      name: unique("again"),
      run: async (ctx) => {
        await ctx.inbox.next();
        const taken = await ctx.step(
          "taking",
          async (step) => {
            tries += 1;
            const item = await step.inbox.next();
            if (tries === 1) throw new TypeError("once");
            return item.content;
          },
          { retries: 1, backoffMs: 1 },
        );
        return [taken, texts(await ctx.inbox.take())];
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await say(ref, "one");
    await say(ref, "two");
    expect(reduced(ref, await ended(broker, ref)).output).toEqual(["two", []]);
  });
});
