import { type Broker } from "@throughline/broker";
import { describe, expect, it } from "vitest";
import { type Agent, AgentError, defineAgent, defineTool } from "../src/index.ts";
import {
  answered,
  command,
  ended,
  latch,
  logged,
  logOf,
  reduced,
  startRun,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";

let broker: Broker;
const hosted = workshop((made) => ({ broker } = made));

const busy = (message: string, retryAfterMs?: number): AgentError =>
  new AgentError("busy", message, {
    retryable: true,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });

describe("a step that fails", () => {
  it("[STEP1] is tried again for a retryable reason, each try a step of its own", async () => {
    const tries: number[] = [];
    const agent = defineAgent({
      name: unique("retries"),
      run: (ctx) =>
        ctx.step(
          "call",
          async (step) => {
            tries.push(performance.now());
            await step.message().write(`try ${tries.length}`);
            if (tries.length === 1) throw busy("first");
            // Longer than the backoff: the error's own word goes before.
            if (tries.length === 2) throw busy("second", 300);
            return tries.length;
          },
          { retries: 3, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toBe(3);
    expect(state.steps.map((s) => [s.key, s.status, s.error?.message])).toEqual([
      ["call#1", "failed", "first"],
      ["call#1", "failed", "second"],
      ["call#1", "completed", undefined],
    ]);
    expect(new Set(state.steps.map((s) => s.step_id)).size).toBe(3);
    expect(state.messages.map((m) => m.text)).toEqual(["try 1", "try 2", "try 3"]);
    expect((tries[2] ?? 0) - (tries[1] ?? 0)).toBeGreaterThanOrEqual(295);
  });

  it("[STEP1] is not tried more often than asked for, nor for a reason that will not pass", async () => {
    let tries = 0;
    const agent = defineAgent({
      name: unique("fails"),
      run: async (ctx) => {
        const attempt = (retryable: boolean): Promise<unknown> =>
          ctx
            .step(
              "call",
              () => {
                tries += 1;
                throw new AgentError("no", "no", { retryable });
              },
              { retries: 2, backoffMs: 1 },
            )
            .catch((error: unknown) => (error as AgentError).code);
        return [await attempt(true), tries, await attempt(false), tries];
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toEqual(["no", 3, "no", 4]);
  });

  it("[STEP1] goes on with its tries after a takeover, without those that it had", async () => {
    let tries = 0;
    const reached = latch();
    const agent = defineAgent({
      name: unique("fails"),
      run: (ctx) =>
        ctx
          .step(
            "call",
            () => {
              tries += 1;
              reached.open();
              throw busy("no", ctx.attempt === 1 ? 60_000 : undefined);
            },
            { retries: 2, backoffMs: 1 },
          )
          .catch(() => tries),
    });
    const first = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await logged(broker, ref, (e) => e.type === "step.failed");
    await first.die();
    await hosted(agent);
    expect(reduced(ref, await ended(broker, ref)).output).toBe(3);
  });

  it("[STEP4] does again what failed in it, and keeps what was done in it", async () => {
    const executed: string[] = [];
    const agent = defineAgent({
      name: unique("nested"),
      run: (ctx) =>
        ctx.step(
          "outer",
          async (outer) => {
            await outer.step("done", () => void executed.push("done"));
            await outer.step("shaky", () => {
              executed.push("shaky");
              if (executed.length < 4) throw busy("again");
            });
            return executed;
          },
          { retries: 5, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toEqual([
      "done",
      "shaky",
      "shaky",
      "shaky",
    ]);
  });

  it("[STEP1][STEP4] with one in it: that one's next try is a step of its own too, and makes its failed calls again", async () => {
    let calls = 0;
    const flaky = defineTool({
      name: "flaky",
      run: () => {
        calls += 1;
        if (calls === 1) throw busy("the first call");
        return "called";
      },
    });
    const agent = defineAgent({
      name: unique("nested"),
      tools: [flaky],
      run: (ctx) =>
        ctx.step(
          "outer",
          (outer) =>
            outer.step("inner", async (inner) => {
              await inner.message().write(`after ${calls}`);
              for await (const outcome of inner.tools.call([{ name: "flaky", args: null }])) {
                if (outcome.ok) return outcome.result;
              }
              throw busy("again");
            }),
          { retries: 1, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { output, steps, messages } = reduced(ref, await ended(broker, ref));
    expect(output).toBe("called");
    expect(calls).toBe(2);
    expect(steps.map((s) => [s.name, s.status])).toEqual([
      ["outer", "failed"],
      ["inner", "failed"],
      ["outer", "completed"],
      ["inner", "completed"],
    ]);
    expect(messages.map((m) => m.text)).toEqual(["after 0", "after 1"]);
  });

  it("[STEP1][STEP4] with one in it: each of its tries gives that one all of its own", async () => {
    let calls = 0;
    const agent = defineAgent({
      name: unique("both"),
      run: (ctx) =>
        ctx.step(
          "outer",
          (outer) =>
            outer.step(
              "inner",
              () => {
                calls += 1;
                if (calls < 4) throw busy(`call ${calls}`);
                return calls;
              },
              { retries: 1, backoffMs: 1 },
            ),
          { retries: 1, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toBe(4);
  });
});

describe("step.retry", () => {
  /** Fails until it has been tried so often. */
  const asking = (untilTry: number): Agent => {
    let tries = 0;
    return defineAgent({
      name: unique("asking"),
      run: (ctx) =>
        ctx.step(
          "call",
          () => {
            tries += 1;
            if (tries < untilTry) throw new AgentError("no", `try ${tries}`);
            return tries;
          },
          { onFailure: "ask" },
        ),
    });
  };
  const failedStep = async (ref: Parameters<typeof logOf>[1]): Promise<string> => {
    const events = await logged(broker, ref, (_, { status }) => status === "waiting_input");
    return reduced(ref, events).steps.at(-1)?.step_id ?? "";
  };

  it("[STEP2][STEP3] does the step again that waits for it, and no other", async () => {
    const agent = asking(3);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const step_id = await failedStep(ref);
    const wrong = await command(broker, ref, "step.retry", { payload: { step_id: "stp_x" } });
    expect(await answered(broker, ref, wrong.id)).toMatchObject({ payload: { code: "not_found" } });
    const first = await command(broker, ref, "step.retry", { payload: { step_id } });
    expect(await answered(broker, ref, first.id)).toMatchObject({
      type: "step.started",
      key: "call#1",
    });
    await logged(broker, ref, (_, s) => s.status === "waiting_input" && s.steps.length === 2);
    const old = await command(broker, ref, "step.retry", { payload: { step_id } });
    expect(await answered(broker, ref, old.id)).toMatchObject({
      payload: { code: "not_allowed", current: { status: "failed" } },
    });
    await command(broker, ref, "step.retry", { payload: { step_id: await failedStep(ref) } });
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toBe(3);
    expect(events.flatMap((e) => (e.type === "run.status" ? [e.payload.status] : []))).toEqual([
      "waiting_input",
      "running",
      "waiting_input",
      "running",
    ]);
  });

  it("[STEP2] may come as soon as the failure is seen: that the step waits stands before it", async () => {
    const agent = asking(2);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const events = await logged(broker, ref, (one) => one.type === "step.failed");
    const failed = events.find((one) => one.type === "step.failed");
    const { id } = await command(broker, ref, "step.retry", {
      payload: { step_id: failed?.step_id },
    });
    expect((await answered(broker, ref, id)).type).toBe("step.started");
    const types = (await ended(broker, ref)).map((one) => one.type);
    expect(types.indexOf("memory.updated")).toBeGreaterThan(0);
    expect(types.indexOf("memory.updated")).toBeLessThan(types.indexOf("step.failed"));
  });

  it("[STEP2][C18] is heard by the worker that takes over, before its agent asks again", async () => {
    const agent = asking(2);
    const first = await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const step_id = await failedStep(ref);
    await first.die();
    const { id } = await command(broker, ref, "step.retry", { payload: { step_id } });
    await hosted(agent);
    expect((await answered(broker, ref, id)).type).toBe("step.started");
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toBe(2);
    expect(state.steps.map((s) => s.status)).toEqual(["failed", "completed"]);
  });

  it("[STEP3] of a failure that the agent has heard of is refused, but does it again on a paused run", async () => {
    let tries = 0;
    const caught = latch();
    const agent = defineAgent({
      name: unique("catching"),
      run: async (ctx) => {
        const call = (): number => {
          tries += 1;
          if (tries === 1) throw new AgentError("no", "no");
          return tries;
        };
        const got = await ctx.step("call", call).catch(() => "caught");
        if (got === "caught") {
          caught.open();
          await new Promise((_, reject) =>
            ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)),
          );
        }
        return got;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await caught.opened;
    const step_id = reduced(ref, await logOf(broker, ref)).steps[0]?.step_id;
    const refused = await command(broker, ref, "step.retry", { payload: { step_id } });
    expect(await answered(broker, ref, refused.id)).toMatchObject({
      payload: { code: "not_allowed", current: { status: "failed" } },
    });
    await command(broker, ref, "run.interrupt");
    const { id } = await command(broker, ref, "step.retry", { payload: { step_id } });
    expect((await answered(broker, ref, id)).type).toBe("step.started");
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toBe(2);
    expect(typesOf(events).filter((type) => type === "step.started")).toHaveLength(2);
  });
});
