/** The application's own state, where it is large. */
import { type Broker, isArtifactRef, resolve } from "@throughline/broker";
import { describe, expect, it } from "vitest";
import { defineAgent, type RunContext } from "../src/index.ts";
import { ended, latch, reduced, startRun, unique, workshop } from "./harness.ts";

let broker: Broker;
const hosted = workshop((made) => ({ broker } = made));

const LARGE = "x".repeat(700_000);

async function appOf(run: (ctx: RunContext) => Promise<unknown>) {
  const agent = defineAgent({ name: unique("state"), run });
  await hosted(agent);
  const ref = await startRun(broker, agent.name);
  const events = await ended(broker, ref);
  const { app, status, emits } = reduced(ref, events);
  return { events, app, status, emits, whole: await resolve(broker.objects, ref, app) };
}

describe("[OPS13] a large state", () => {
  it("is an object; patches on it make it anew; small again, it is inline", async () => {
    const { events, app, whole, status } = await appOf(async (ctx) => {
      await ctx.setState({ a: 1, gone: 2 });
      await ctx.setState({ large: LARGE, gone: null });
      await ctx.setState({ b: [3] });
      await ctx.emit("between", 1);
    });
    expect(status).toBe("completed");
    expect(isArtifactRef(app)).toBe(true);
    expect(whole).toEqual({ a: 1, large: LARGE, b: [3] });
    const updates = events.flatMap((event) =>
      event.type === "state.updated" ? event.payload : [],
    );
    expect(updates.map((update) => Object.keys(update)[0])).toEqual(["patch", "state", "state"]);

    const small = await appOf(async (ctx) => {
      await ctx.setState({ large: LARGE, a: 1 });
      await ctx.setState({ large: null });
      await ctx.setState({ b: 2 });
    });
    expect(small.app).toEqual({ a: 1, b: 2 });
  });

  it("takes updates that are not awaited in their order, and what is emitted behind them waits", async () => {
    const { events, whole } = await appOf(async (ctx) => {
      const all = [
        ctx.setState({ n: 1 }),
        ctx.setState({ n: 2, large: LARGE }),
        ctx.setState({ n: 3 }),
        ctx.emit("behind", 1),
        ctx.setState({ n: 4 }),
      ];
      await Promise.all(all);
      await ctx.step("inside", (step) => step.setState({ inside: true }));
    });
    expect(whole).toEqual({ n: 4, large: LARGE, inside: true });
    const order = events.flatMap(({ type }) =>
      type === "state.updated" || type === "custom" ? type : [],
    );
    expect(order).toEqual([
      "state.updated",
      "state.updated",
      "state.updated",
      "custom",
      "state.updated",
      "state.updated",
    ]);
  });

  it("[REQ1] is the same after a takeover, wherever the worker dies", async () => {
    for (let dieAt = 0; dieAt < 4; dieAt += 1) {
      const reached = latch();
      let at = 0;
      const place = async (ctx: RunContext): Promise<void> => {
        if (ctx.attempt === 1 && at++ === dieAt) {
          reached.open();
          await new Promise(() => undefined);
        }
      };
      const agent = defineAgent({
        name: unique("dies"),
        run: async (ctx) => {
          for (let n = 0; n < 4; n += 1) {
            await place(ctx);
            await ctx.setState({ [`k${n}`]: n === 1 ? LARGE : n });
            await ctx.emit("done", n);
          }
        },
      });
      const doomed = await hosted(agent);
      const ref = await startRun(broker, agent.name);
      await reached.opened;
      await doomed.die();
      await hosted(agent);
      const { app, emits } = reduced(ref, await ended(broker, ref));
      expect(await resolve(broker.objects, ref, app)).toEqual({ k0: 0, k1: LARGE, k2: 2, k3: 3 });
      expect(emits["@emit"]).toBe(8);
    }
  });
});
