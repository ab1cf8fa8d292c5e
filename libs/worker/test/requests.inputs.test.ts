import { type Broker } from "@throughline/broker";
import { MAX_FRAME_BYTES } from "@throughline/protocol";
import { eventually, type NatsServer } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import { type Agent, defineAgent } from "../src/index.ts";
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
import {
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

function evenNumber(content: unknown): number {
  if (typeof content !== "number") throw new TypeError("a number is wanted");
  if (content % 2 === 1) throw new RangeError("it is odd");
  return content;
}

/** Its output is half of the even number that it is told. */
function halving(): Agent {
  return defineAgent({
    name: unique("halves"),
    run: async (ctx) => {
      const number = await ctx.ask({
        prompt: "An even number?",
        schema: { type: "number", multipleOf: 2 },
        parse: evenNumber,
      });
      return number / 2;
    },
  });
}

describe("an input", () => {
  it("[INP1][REQ4] is asked for with its prompt and schema, and the run waits for it", async () => {
    const agent = halving();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { input_id, prompt, schema } = await openInput(broker, ref);
    expect({ prompt, schema }).toEqual({
      prompt: "An even number?",
      schema: { type: "number", multipleOf: 2 },
    });
    await untilState(broker, ref, (state) => state.status === "waiting_input");
    await send(broker, ref, "input.respond", { input_id, content: 8 }, { user: "bob" });
    const events = await ended(broker, ref);
    expect(reduced(ref, events)).toMatchObject({
      output: 4,
      inputs: [{ input_id, status: "received", content: 8, by: "bob" }],
    });
    expect(typesOf(events).slice(2)).toEqual([
      "input.requested",
      "run.status",
      "input.received",
      "run.status",
      "run.completed",
    ]);
  });

  it("[INP2] that the agent cannot use is refused in its words, and can be given again", async () => {
    const agent = halving();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    const odd = await verdict(broker, ref, "input.respond", { input_id, content: 3 });
    expect(odd.payload).toMatchObject({ code: "invalid", message: "payload.content: it is odd" });
    const text = await verdict(broker, ref, "input.respond", { input_id, content: "8" });
    expect(text.payload).toMatchObject({ message: "payload.content: a number is wanted" });
    expect((await stateOfRun(broker, ref)).inputs).toMatchObject([{ status: "open" }]);
    await send(broker, ref, "input.respond", { input_id, content: 2 });
    expect(reduced(ref, await ended(broker, ref)).output).toBe(1);
  });

  it("[REQ1][REQ2] is asked for once, whoever has the run, and the first answer counts", async () => {
    const agent = halving();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await first.die();
    const one = await send(broker, ref, "input.respond", { input_id, content: 4 });
    const two = await send(broker, ref, "input.respond", { input_id, content: 6 }, { user: "bob" });
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toBe(2);
    expect(ofType(events, "input.requested")).toHaveLength(1);
    const verdicts = events.filter((e) => e.reply_to === one || e.reply_to === two);
    expect(verdicts.map(inShort)).toEqual(["input.received", "already_resolved"]);
  });

  it("[INP5] that fits a frame and no event is too large, and does no harm", async () => {
    const agent = defineAgent({
      name: unique("takes-any"),
      run: (ctx) => ctx.ask({ prompt: "Anything?" }),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    const content = "x".repeat(MAX_FRAME_BYTES - 350);
    const large = await verdict(broker, ref, "input.respond", { input_id, content });
    expect(large.payload).toMatchObject({ code: "too_large" });
    await send(broker, ref, "input.respond", { input_id, content: "small" });
    expect(reduced(ref, await ended(broker, ref))).toMatchObject({ output: "small", attempt: 1 });
  });

  it("[INP6][CMDW1] that came while no worker was there is checked by the agent: the first good one counts", async () => {
    const agent = halving();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await first.die();
    const ids = [
      await send(broker, ref, "input.respond", { input_id, content: 5 }),
      await send(broker, ref, "input.respond", { input_id, content: 8 }),
      await send(broker, ref, "input.respond", { input_id, content: 10 }),
    ];
    await hosted(agent);
    const events = await ended(broker, ref);
    const verdicts = events.filter((e) => e.reply_to !== undefined && ids.includes(e.reply_to));
    expect(verdicts.map((e) => e.reply_to)).toEqual(ids);
    expect(verdicts.map(inShort)).toEqual(["invalid", "input.received", "already_resolved"]);
    expect(ofType(events, "input.requested")).toHaveLength(1);
    expect(reduced(ref, events).output).toBe(4);
  });

  it("[INP6][CMDW5] keeps back no cancellation that was stored after it, and the agent is not executed", async () => {
    let executions = 0;
    const agent = defineAgent({
      name: unique("counted"),
      run: (ctx) => {
        executions += 1;
        return ctx.ask({ prompt: "An even number?", parse: evenNumber });
      },
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await first.die();
    await send(broker, ref, "input.respond", { input_id, content: 5 });
    await send(broker, ref, "run.cancel", {});
    await hosted(agent);
    expect((await ended(broker, ref)).at(-1)?.type).toBe("run.cancelled");
    expect(executions).toBe(1);
  });

  it.each([["cancel"], ["look"], ["end"]])(
    "[INP6] waits for no agent that does not ask again: %s",
    async (by) => {
      const executed = latch();
      const agent = defineAgent({
        name: unique("forgetful"),
        run: async (ctx) => {
          if (ctx.attempt === 1) return ctx.ask({ prompt: "An even number?", parse: evenNumber });
          executed.open();
          if (by === "cancel") return new Promise(() => undefined);
          if (by === "look") return (await ctx.inbox.take()).length;
          return 0;
        },
      });
      const first = await startWorker(nats.url, [agent]);
      const ref = await startRun(broker, agent.name);
      const { input_id } = await openInput(broker, ref);
      await first.die();
      const id = await send(broker, ref, "input.respond", { input_id, content: 5 });
      await hosted(agent);
      await executed.opened;
      if (by === "cancel") await send(broker, ref, "run.cancel", {});
      const events = await ended(broker, ref, 4_000);
      expect(events.find((event) => event.reply_to === id)).toMatchObject({
        type: "input.received",
      });
    },
  );

  it("[INP6] is kept back no longer than 5 s by an agent that does other things", async () => {
    const heard = latch();
    const agent = defineAgent({
      name: unique("busy"),
      run: async (ctx) => {
        if (ctx.attempt > 1) await heard.opened;
        return ctx.ask({ prompt: "An even number?", parse: evenNumber });
      },
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await first.die();
    const id = await send(broker, ref, "input.respond", { input_id, content: 6 });
    await hosted(agent);
    await eventually(async () => (await stateOfRun(broker, ref)).inputs[0]?.status === "received", {
      timeoutMs: 10_000,
      what: `an answer to ${id}`,
    });
    heard.open();
    expect(reduced(ref, await ended(broker, ref)).output).toBe(6);
  });

  it("[INP3] that was accepted while no agent could check it, and is of no use, is asked for again", async () => {
    const agent = halving();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await verdict(broker, ref, "run.interrupt", {});
    await first.die();
    // Its next worker finds it paused, and executes no agent.
    await send(broker, ref, "input.respond", { input_id, content: 5 });
    await send(broker, ref, "run.resume", {});
    await hosted(agent);
    const again = await untilState(broker, ref, (state) =>
      state.inputs.find((input) => input.input_id !== input_id),
    );
    expect(again.prompt).toBe("An even number?");
    await send(broker, ref, "input.respond", { input_id: again.input_id, content: 10 });
    expect(reduced(ref, await ended(broker, ref)).output).toBe(5);
  });

  it("[INP4] stays open over an interrupt: its answer is checked and as good as before it", async () => {
    const agent = halving();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { input_id } = await openInput(broker, ref);
    await verdict(broker, ref, "run.interrupt", {});
    const odd = await verdict(broker, ref, "input.respond", { input_id, content: 7 });
    expect(odd.payload).toMatchObject({ code: "invalid" });
    const given = await verdict(broker, ref, "input.respond", { input_id, content: 12 });
    expect(given.type).toBe("input.received");
    await send(broker, ref, "run.resume", {});
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toBe(6);
    expect(ofType(events, "input.requested")).toHaveLength(1);
  });
});
