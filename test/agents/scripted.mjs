/** An agent that does what its input says. See ../script.ts. */
import { AgentError, defineAgent, defineTool } from "@throughline/worker";
import { setTimeout as delay } from "node:timers/promises";

/**
 * @typedef {import("../script.ts").Op} Op
 * @typedef {import("@throughline/worker").RunContext<import("../script.ts").Script>} Context
 * @typedef {import("@throughline/worker").Scope} Scope
 * @typedef {import("./effects.mjs").Effects} Effects
 */

/**
 * @param {string} name
 * @param {Effects} effects what tools and steps do to the world outside
 */
export function scripted(name, effects) {
  return defineAgent({
    name,
    tools: [
      defineTool({
        name: "double",
        // Executed twice it has one effect: whoever counts them goes by the mark.
        idempotent: true,
        run: (args) => {
          effects.record(`double ${markOf(args)}`);
          return { doubled: 2 * numberOf(args, "n") };
        },
      }),
      defineTool({
        name: "slow",
        idempotent: true,
        run: async (args, { signal }) => {
          effects.record(`slow ${markOf(args)}`);
          signal.addEventListener("abort", () => effects.record(`stopped ${markOf(args)}`));
          await delay(numberOf(args, "ms"), undefined, { signal });
          return "slow";
        },
      }),
      defineTool({
        name: "once",
        run: async (args, { signal }) => {
          effects.record(`once ${markOf(args)}`);
          await delay(numberOf(args, "ms"), undefined, { signal });
          return "once";
        },
      }),
      defineTool({
        name: "guarded",
        approval: { risk: "high" },
        run: (args) => {
          effects.record(`guarded ${markOf(args)}`);
          return { doubled: 2 * numberOf(args, "n") };
        },
      }),
    ],
    run: async (/** @type {Context} */ ctx) => {
      const script = ctx.input;
      return perform(ctx, ctx, script.do, { effects, paceMs: script.pace_ms ?? 0 });
    },
  });
}

/**
 * @param {Context} ctx
 * @param {Scope} scope the run, or the step that the operations are part of
 * @param {readonly Op[]} ops
 * @param {{ effects: Effects, paceMs: number }} world
 * @returns {Promise<unknown[]>}
 */
async function perform(ctx, scope, ops, world) {
  /** @type {unknown[]} */
  const results = [];
  for (const op of ops) {
    results.push((await operate(ctx, scope, op, world)) ?? null);
    if (world.paceMs > 0) await delay(world.paceMs, undefined, { signal: ctx.signal });
  }
  return results;
}

/**
 * @param {Context} ctx
 * @param {Scope} scope
 * @param {Op} op
 * @param {{ effects: Effects, paceMs: number }} world
 * @returns {Promise<unknown>}
 */
async function operate(ctx, scope, op, world) {
  switch (op.op) {
    case "say": {
      const message = scope.message(op.channel === undefined ? {} : { channel: op.channel });
      for (let n = 0; n < (op.times ?? 1); n += 1) await message.write(op.text);
      return message.end();
    }
    case "stream": {
      const message = scope.message();
      for (let n = 0; n < op.words; n += 1) {
        await message.write(`word${n} `);
        await delay(op.everyMs, undefined, { signal: ctx.signal });
      }
      return message.end();
    }
    case "step":
      return scope.step(
        op.name,
        async (step) => {
          const before = world.effects.count(`try ${ctx.run_id} ${op.name}`);
          world.effects.record(`try ${ctx.run_id} ${op.name}`);
          const result = await perform(ctx, step, op.do, world);
          if (before < (op.fails ?? 0))
            throw new AgentError("flaky", `try ${before + 1} of ${op.name}`, { retryable: true });
          world.effects.record(`done ${ctx.run_id} ${op.name}`);
          return result;
        },
        { retries: op.retries ?? 0, backoffMs: 10, onFailure: op.ask === true ? "ask" : "throw" },
      );
    case "tools": {
      /** @type {unknown[]} */
      const outcomes = [];
      for await (const outcome of scope.tools.call(op.calls)) {
        outcomes[outcome.index] = outcome.ok ? outcome.result : { code: outcome.error.code };
        if (op.tell === true) await scope.emit("outcome", outcome.name);
      }
      return outcomes;
    }
    case "approval":
      return scope.approval({
        operation: op.operation,
        description: `May it ${op.operation}?`,
        ...(op.expiresInMs === undefined ? {} : { expiresInMs: op.expiresInMs }),
        ...(op.default === undefined ? {} : { default: op.default }),
      });
    case "input":
      return scope.ask({ prompt: op.prompt });
    case "inbox":
      return op.wait === true
        ? (await scope.inbox.next()).content
        : (await scope.inbox.take()).map(({ content }) => content);
    case "all":
      return Promise.all(op.do.map((each) => operate(ctx, scope, each, world)));
    case "sleep":
      return delay(op.ms, null, { signal: ctx.signal });
    case "emit":
      return scope.emit(op.name, 1);
    case "fail":
      throw new AgentError(op.code, "as the script says");
  }
}

/**
 * @param {unknown} args
 * @param {string} name
 */
function numberOf(args, name) {
  const value = typeof args === "object" && args !== null ? Reflect.get(args, name) : undefined;
  if (typeof value !== "number") throw new TypeError(`${name}: a number is wanted`);
  return value;
}

/**
 * What the test calls it by: a call's id is the run's own, and says nothing outside of it.
 *
 * @param {unknown} args
 */
function markOf(args) {
  return typeof args === "object" && args !== null ? String(Reflect.get(args, "mark")) : "";
}
