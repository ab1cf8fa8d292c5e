import { type Broker } from "@throughline/broker";
import { eventually, natsFilter, type NatsServer, tcpProxy } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { defineAgent } from "../src/index.ts";
import {
  command,
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

/** Works until its signal, with everything open that can be open. */
function busyAgent(reached: () => void): ReturnType<typeof defineAgent> {
  return defineAgent({
    name: unique("busy"),
    run: async (ctx) => {
      await ctx.message().write("at the top");
      await ctx.step("outer", (outer) =>
        outer.step("inner", async (inner) => {
          await inner.message().write("deep inside");
          reached();
          await new Promise((_, reject) =>
            ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)),
          );
        }),
      );
    },
  });
}

describe("run.cancel", () => {
  it("[CMDW4][FIN1][C24] stops the agent, closes what is open, then ends the run", async () => {
    const reached = latch();
    const agent = busyAgent(() => reached.open());
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id } = await command(broker, ref, "run.cancel", { reason: "enough", user: "bob" });
    const events = await ended(broker, ref);
    expect(events.at(-1)).toMatchObject({
      type: "run.cancelled",
      reply_to: id,
      reply_by: "bob",
      payload: { reason: "enough", by: "bob" },
    });
    const state = reduced(ref, events);
    expect(state.messages.map((m) => [m.text, m.status, m.finish_reason])).toEqual([
      ["at the top", "completed", "cancelled"],
      ["deep inside", "completed", "cancelled"],
    ]);
    expect(state.steps.map((s) => [s.name, s.status, s.error?.code])).toEqual([
      ["outer", "failed", "cancelled"],
      ["inner", "failed", "cancelled"],
    ]);
  });

  it("[CMDW1] the event carries the watermark of the command", async () => {
    const reached = latch();
    const agent = busyAgent(() => reached.open());
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const published = await command(broker, ref, "run.cancel");
    await ended(broker, ref);
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    expect(last?.cmd).toBe(published.streamSeq);
  });

  it("[CMDW5] before a worker takes the run up, ends it without executing the agent", async () => {
    let executed = false;
    const agent = defineAgent({ name: unique("never"), run: () => void (executed = true) });
    const ref = await startRun(broker, agent.name);
    await command(broker, ref, "run.cancel");
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(typesOf(events)).toEqual(["run.queued", "run.started", "run.cancelled"]);
    expect(executed).toBe(false);
  });

  it("[FIN4] an agent that ignores its signal is left behind, and writes nothing more", async () => {
    const reached = latch();
    const go = latch();
    const refused = latch();
    const agent = defineAgent({
      name: unique("deaf"),
      run: async (ctx) => {
        const message = ctx.message();
        await message.write("before");
        reached.open();
        await go.opened;
        await message.write(" after").catch(() => refused.open());
        await ctx.emit("after", 1).catch(() => undefined);
        return "as if nothing had happened";
      },
    });
    const worker = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const from = performance.now();
    await command(broker, ref, "run.cancel");
    const events = await ended(broker, ref);
    expect(performance.now() - from).toBeLessThan(4_000);
    await eventually(() => worker.active === 0);
    go.open();
    await refused.opened;
    expect(reduced(ref, events).messages[0]?.text).toBe("before");
    expect(await logOf(broker, ref)).toEqual(events);
    expect(worker.logged.join("\n")).toContain("ignores its signal");
  });

  it("[FIN4] an agent that catches everything and tries again keeps nobody else from moving", async () => {
    const reached = latch();
    let over = false;
    const agent = defineAgent({
      name: unique("stubborn"),
      run: async (ctx) => {
        const message = ctx.message();
        reached.open();
        while (!over) {
          await ctx.emit("again", 1).catch(() => undefined);
          await message.write("again").catch(() => undefined);
          await message.end().catch(() => undefined);
          await ctx.step("again", () => 1).catch(() => undefined);
        }
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await command(broker, ref, "run.cancel");
    expect((await ended(broker, ref)).at(-1)?.type).toBe("run.cancelled");
    over = true;
  });

  it("[CMDW6] stored while the agent returns, it is not overridden by the outcome", async () => {
    const reached = latch();
    const agent = defineAgent({
      name: unique("quick"),
      run: async () => {
        // Stored before the agent returns; its live copy never comes.
        await command(broker, ref, "run.cancel");
        reached.open();
        return "done";
      },
    });
    const ref = freshRef();
    const proxy = await tcpProxy({ port: nats.port });
    const filter = natsFilter((m) => (m.subject.startsWith("tl.cl.") ? "drop" : "pass"));
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    await startRun(broker, agent.name, { ref });
    await reached.opened;
    expect((await ended(broker, ref)).at(-1)?.type).toBe("run.cancelled");
    expect(filter.dropped).toBe(1);
    await worker.stop();
    await worker.die();
    proxy.close();
  });
});

describe("other commands", () => {
  it("[CMDW1][CMDW3] are answered in their order, each by a stored event", async () => {
    const hold = latch();
    const agent = defineAgent({ name: unique("waits"), run: () => hold.opened });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await eventually(async () => typesOf(await logOf(broker, ref)).includes("run.started"));
    const ids = [];
    for (let i = 0; i < 20; i++) ids.push((await command(broker, ref, "run.resume")).id);
    await eventually(async () => {
      const answers = (await logOf(broker, ref)).filter((e) => e.type === "command.rejected");
      return answers.length === 20;
    });
    hold.open();
    const events = await ended(broker, ref);
    const answers = events.filter((e) => e.type === "command.rejected");
    expect(answers.map((e) => e.reply_to)).toEqual(ids);
    expect(answers[1]?.payload).toMatchObject({
      code: "not_allowed",
      current: { status: "running" },
    });
  });

  it("[CMDW10] an answer that is there before the worker knows that its question is stored counts", async () => {
    const ref = freshRef();
    const judging = latch();
    let holding = false;
    const agent = defineAgent({
      name: unique("asks"),
      run: async (ctx) => {
        holding = true;
        return ctx.approval({ operation: "deploy", description: "to all" });
      },
    });
    const proxy = await tcpProxy({ port: nats.port });
    const filter = natsFilter((m) => {
      if (m.subject.startsWith("tl.cl.")) judging.open();
      const stored = m.payload.includes('"stream":') && m.payload.includes('"seq":');
      return holding && m.subject.startsWith("_INBOX") && stored ? "hold" : "pass";
    });
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    await startRun(broker, agent.name, { ref });
    const request = await eventually(async () =>
      (await logOf(broker, ref)).find((event) => event.type === "approval.requested"),
    );
    await command(broker, ref, "approval.respond", {
      payload: { approval_id: Reflect.get(request.payload, "approval_id"), decision: "allow" },
    });
    await judging.opened;
    // What the worker would do without waiting, it has done after a round trip of its own.
    await broker.events.head(ref);
    expect(filter.held).toBeGreaterThan(0);
    holding = false;
    filter.release();
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toMatchObject({ decision: "allow" });
    await worker.stop();
    await worker.die();
    proxy.close();
  });

  it("[CMDW2] one that was answered is passed over for the run's life, past the server's window", async () => {
    const hold = latch();
    const agent = defineAgent({ name: unique("waits"), run: () => hold.opened });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const first = await command(broker, ref, "run.resume", { id: "same" });
    await eventually(async () => typesOf(await logOf(broker, ref)).includes("command.rejected"));
    const name = `TL_CM_${broker.shardOf(ref.session)}`;
    await broker.jsm.streams.update(name, { duplicate_window: 100_000_000 });
    await eventually(async () => {
      const again = await command(broker, ref, "run.resume", { id: "same" });
      return again.streamSeq > first.streamSeq;
    });
    await command(broker, ref, "run.resume", { id: "other" });
    await eventually(async () => (await logOf(broker, ref)).some((e) => e.reply_to === "other"));
    hold.open();
    const events = await ended(broker, ref);
    expect(events.filter((e) => e.type === "command.rejected").map((e) => e.reply_to)).toEqual([
      "same",
      "other",
    ]);
  });

  it("[CMDW7][C18] a takeover goes on from the watermark", async () => {
    const reached = latch();
    const hold = latch();
    const agent = defineAgent({
      name: unique("passed"),
      run: async (ctx) => {
        if (ctx.attempt > 1) return hold.opened;
        reached.open();
        return new Promise(() => undefined);
      },
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const { id: one } = await command(broker, ref, "run.resume");
    await eventually(async () => (await logOf(broker, ref)).some((e) => e.reply_to === one));
    await first.die();
    const { id: two } = await command(broker, ref, "run.resume");
    await hosted(agent);
    await eventually(async () => (await logOf(broker, ref)).some((e) => e.reply_to === two));
    hold.open();
    const events = await ended(broker, ref);
    expect(events.filter((e) => e.type === "command.rejected").map((e) => e.reply_to)).toEqual([
      one,
      two,
    ]);
  });

  it("[CMDW8] a flood is taken in bounded portions, in order and whole", async () => {
    const hold = latch();
    const agent = defineAgent({ name: unique("flooded"), run: () => hold.opened });
    const ref = await startRun(broker, agent.name);
    const ids = Array.from({ length: 1_300 }, (_, i) => `flood_${i}`);
    for (let i = 0; i < ids.length; i += 100) {
      await Promise.all(
        ids.slice(i, i + 100).map((id) => command(broker, ref, "run.resume", { id })),
      );
    }
    await hosted(agent);
    await eventually(
      async () => {
        const last = await broker.events.last({ kind: "run", ...ref }, "leader");
        return (last?.lastSeq ?? 0) >= ids.length;
      },
      { timeoutMs: 25_000 },
    );
    hold.open();
    const events = await ended(broker, ref);
    const answered = events.filter((e) => e.type === "command.rejected").map((e) => e.reply_to);
    expect(answered).toEqual(await storedOrder(ref));
    expect(answered).toHaveLength(ids.length);

    async function storedOrder(of: typeof ref): Promise<unknown[]> {
      const commands: unknown[] = [];
      const tail = broker.commands.tail(of, 0, {
        command: ({ command: one }) => void commands.push((one as { id: string }).id),
        fault: (error) => void commands.push(error),
      });
      await tail.drainToLeader();
      tail.close();
      return commands;
    }
  });
});
