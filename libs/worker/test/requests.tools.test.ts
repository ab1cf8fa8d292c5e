import { type Broker, openRunWriter } from "@throughline/broker";
import { eventually, type NatsServer } from "@throughline/testkit";
import { describe, expect, it } from "vitest";
import {
  type Agent,
  AgentError,
  defineAgent,
  defineTool,
  type RunContext,
  RunStopped,
  type Tool,
  type ToolCall,
  type ToolOutcome,
} from "../src/index.ts";
import {
  ended,
  latch,
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
  ofType,
  openApproval,
  send,
  untilState,
  verdict,
} from "./requests-harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made), { graceMs: 500 });

function shown(outcome: ToolOutcome): unknown[] {
  return [outcome.name, outcome.ok ? outcome.result : outcome.error.code];
}

/** Its output is what came of the calls, in the order in which it came. */
function caller(tools: readonly Tool[], calls: readonly ToolCall[], timeoutMs?: number): Agent {
  return defineAgent({
    name: unique("caller"),
    tools,
    run: async (ctx) => {
      const told: unknown[] = [];
      const options = timeoutMs === undefined ? {} : { timeoutMs };
      for await (const outcome of ctx.tools.call(calls, options)) told.push(shown(outcome));
      return told;
    },
  });
}

async function outputOf(agent: Agent): Promise<unknown> {
  await hosted(agent);
  const ref = await startRun(broker, agent.name);
  return reduced(ref, await ended(broker, ref)).output;
}

const double = defineTool({
  name: "double",
  description: "Twice as much",
  input_schema: { type: "object", properties: { n: { type: "number" } } },
  parse: (raw) => {
    const n: unknown = typeof raw === "object" && raw !== null ? Reflect.get(raw, "n") : undefined;
    if (typeof n !== "number") throw new TypeError("n: a number is wanted");
    return { n };
  },
  run: ({ n }) => n * 2,
});

describe("defineTool", () => {
  it("[TOOL10] refuses a name that no call could have", () => {
    for (const name of ["", "a b", "x".repeat(129), "ä"]) {
      expect(() => defineTool({ name, run: () => 1 })).toThrow(TypeError);
    }
    expect(defineTool({ name: "fs/read:1.0", run: () => 1 }).name).toBe("fs/read:1.0");
  });

  it("[TOOL10] the worker's tools and the client's are listed together; of one name the worker's is taken", async () => {
    const agent = defineAgent({
      name: unique("lists"),
      tools: [double],
      run: async (ctx) => {
        const told: unknown[] = [];
        for await (const outcome of ctx.tools.call([{ name: "double", args: { n: 4 } }])) {
          told.push(shown(outcome));
        }
        return [ctx.tools.available, told];
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(["double", "browser"]) });
    expect(reduced(ref, await ended(broker, ref)).output).toEqual([
      [
        {
          name: "double",
          description: "Twice as much",
          input_schema: { type: "object", properties: { n: { type: "number" } } },
          executor: "worker",
        },
        { name: "browser", description: "", input_schema: { type: "object" }, executor: "client" },
      ],
      [["double", 8]],
    ]);
  });
});

describe("tools that the worker executes", () => {
  it("[TOOL3] are told to be running before they are, and their results are the outcomes", async () => {
    const agent = caller([double], [{ name: "double", args: { n: 21 } }]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const events = await ended(broker, ref);
    expect(typesOf(events).slice(2)).toEqual([
      "tool_call.created",
      "tool_call.status",
      "tool_call.completed",
      "run.completed",
    ]);
    expect(reduced(ref, events)).toMatchObject({
      output: [["double", 42]],
      tool_calls: [{ executor: "worker", requires_approval: false, status: "completed" }],
    });
  });

  it("[TOOL3] are not begun by a worker that has lost the run, since that they run is refused to it", async () => {
    let executed = 0;
    const agent = defineAgent({
      name: unique("fenced"),
      tools: [defineTool({ name: "count", run: () => (executed += 1) })],
      run: async (ctx) => {
        for await (const outcome of ctx.tools.call([{ name: "count", args: null }])) void outcome;
      },
    });
    const worker = await hosted(agent);
    const { nc } = worker.broker;
    const request = nc.request.bind(nc);
    // Between "the call is made" and "it runs" another attempt takes the run over.
    nc.request = async (subject, payload, options) => {
      if (Buffer.from(payload ?? "").includes('"status":"running"')) await takeOver();
      return request(subject, payload, options);
    };
    const ref = await startRun(broker, agent.name);
    await eventually(() => worker.active === 1);
    await eventually(() => worker.active === 0);
    expect(executed).toBe(0);
    expect(typesOf(await logOf(broker, ref)).slice(0, 4)).toEqual([
      "run.queued",
      "run.started",
      "tool_call.created",
      "run.resumed",
    ]);

    async function takeOver(): Promise<void> {
      const last = await broker.events.last({ kind: "run", ...ref }, "leader");
      if (!last) throw new Error("no log");
      const { epoch, lastSeq: seq, streamSeq } = last;
      const position = { seq, streamSeq, eSeq: streamSeq, cmd: 0 };
      const another = openRunWriter(broker, {
        ref,
        epoch,
        attempt: 2,
        worker: "another",
        position,
      });
      await another.append({ type: "run.resumed", payload: { attempt: 2, worker: "another" } });
      await another.close();
    }
  });

  it("[TOOL2] run side by side, and outcomes come as they are there: the agent acts on the first while others run", async () => {
    const slow = latch();
    const tools = [
      defineTool({ name: "slow", run: () => slow.opened.then(() => "slow") }),
      defineTool({ name: "fast", run: () => "fast" }),
    ];
    const agent = defineAgent({
      name: unique("acts"),
      tools,
      run: async (ctx) => {
        const told: unknown[] = [];
        const calls = [
          { name: "slow", args: null },
          { name: "fast", args: null },
        ];
        for await (const outcome of ctx.tools.call(calls)) {
          told.push(shown(outcome));
          // Only what the agent does about the first outcome lets the other one come.
          await ctx.step("act", () => slow.open());
        }
        return told;
      },
    });
    expect(await outputOf(agent)).toEqual([
      ["fast", "fast"],
      ["slow", "slow"],
    ]);
  });

  it("[TOOL4] what is no tool, and what the tool does not take, are failures for the agent to deal with", async () => {
    const agent = caller(
      [double],
      [
        { name: "triple", args: { n: 1 } },
        { name: "double", args: { n: "one" } },
        { name: "double", args: { n: 1 } },
      ],
    );
    const output = await outputOf(agent);
    expect(output).toHaveLength(3);
    expect(output).toEqual(
      expect.arrayContaining([
        ["triple", "unknown_tool"],
        ["double", "invalid_input"],
        ["double", 2],
      ]),
    );
  });

  it("[TOOL7] what a tool throws, and what is no JSON, is the call's failure", async () => {
    const circular: Record<string, unknown> = {};
    circular["self"] = circular;
    const agent = caller(
      [
        defineTool({
          name: "throws",
          run: () => {
            throw new AgentError("no_disk", "full", { retryable: true });
          },
        }),
        defineTool({ name: "rejects", run: () => Promise.reject(new Error("oh")) }),
        defineTool({ name: "circles", run: () => circular }),
        defineTool({ name: "nothing", run: () => undefined }),
      ],
      ["throws", "rejects", "circles", "nothing"].map((name) => ({ name, args: null })),
    );
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const state = reduced(ref, await ended(broker, ref));
    expect(state.tool_calls.map((call) => [call.name, call.error ?? call.result])).toEqual([
      ["throws", { code: "no_disk", message: "full", retryable: true }],
      ["rejects", { code: "tool_error", message: "oh", retryable: false }],
      ["circles", expect.objectContaining({ code: "invalid_output" })],
      ["nothing", null],
    ]);
  });

  it("[TOOL7] an agent that calls what is no JSON is told by the iteration", async () => {
    const agent = defineAgent({
      name: unique("bigint"),
      tools: [double],
      run: async (ctx) => {
        try {
          for await (const _ of ctx.tools.call([{ name: "double", args: { n: 1n } }])) break;
        } catch (error) {
          return error instanceof AgentError ? error.code : String(error);
        }
        return "nothing was thrown";
      },
    });
    expect(await outputOf(agent)).toBe("invalid_output");
  });

  it("[TOOL6] one that takes too long is aborted and left behind", async () => {
    const reasons: unknown[] = [];
    const deaf = latch();
    const tools = [
      defineTool({
        name: "deaf",
        timeoutMs: 100,
        run: (_, { signal }) => {
          signal.addEventListener("abort", () => void reasons.push(signal.reason));
          return deaf.opened;
        },
      }),
      defineTool({ name: "fast", run: () => "fast" }),
    ];
    const agent = caller(tools, [
      { name: "deaf", args: null },
      { name: "fast", args: null },
    ]);
    expect(await outputOf(agent)).toEqual([
      ["fast", "fast"],
      ["deaf", "tool_timeout"],
    ]);
    expect(reasons).toMatchObject([{ code: "tool_timeout" }]);
    deaf.open();
  });

  it("[TOOL6] the caller's time goes before the tool's", async () => {
    const tool = defineTool({ name: "never", timeoutMs: 60_000, run: () => latch().opened });
    expect(await outputOf(caller([tool], [{ name: "never", args: null }], 100))).toEqual([
      ["never", "tool_timeout"],
    ]);
  });

  it("[TOOL7] a cancellation aborts the tool's signal, and closes the call", async () => {
    const reached = latch();
    const reasons: unknown[] = [];
    const tool = defineTool({
      name: "works",
      run: (_, { signal }) =>
        new Promise((_, reject) => {
          reached.open();
          signal.addEventListener("abort", () => {
            reasons.push(signal.reason);
            reject(signal.reason);
          });
        }),
    });
    const agent = caller([tool], [{ name: "works", args: null }]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await send(broker, ref, "run.cancel", {});
    const state = reduced(ref, await ended(broker, ref));
    expect(state.status).toBe("cancelled");
    expect(state.tool_calls).toMatchObject([{ status: "failed", error: { code: "cancelled" } }]);
    expect(reasons).toEqual([expect.any(RunStopped)]);
  });

  it("[TOOL7] word of a running tool is shown and not stored; after its outcome nothing is", async () => {
    const seen: unknown[] = [];
    const reached = latch();
    const go = latch();
    let progress: (word: { fraction?: number; output?: string }) => void = () => undefined;
    const tool = defineTool({
      name: "tells",
      run: async (_, ctx) => {
        progress = (word) => ctx.progress(word);
        reached.open();
        await go.opened;
      },
    });
    const agent = caller([tool], [{ name: "tells", args: null }]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const live = broker.nc.subscribe(`tl.ep.*.*.*.${ref.run}`, {
      callback: (_, message) => {
        for (const line of message.string().split("\n")) seen.push(JSON.parse(line));
      },
    });
    await broker.nc.flush();
    progress({ fraction: 7, output: "half" });
    await eventually(() => seen.length === 1);
    expect(seen).toMatchObject([
      {
        type: "tool_call.progress",
        attempt: 1,
        payload: { fraction: 1, output: "half" },
      },
    ]);
    go.open();
    const events = await ended(broker, ref);
    progress({ output: "late" });
    await broker.nc.flush();
    expect(seen).toHaveLength(1);
    expect(typesOf(events)).not.toContain("tool_call.progress");
    live.unsubscribe();
  });

  it("[TOOL8] a large result is kept as an object, and the agent sees it whole", async () => {
    const tool = defineTool({ name: "large", run: () => "y".repeat(300_000) });
    const agent = defineAgent({
      name: unique("large"),
      tools: [tool],
      run: async (ctx) => {
        for await (const outcome of ctx.tools.call([{ name: "large", args: null }])) {
          return outcome.ok && String(outcome.result).length;
        }
        return undefined;
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toBe(300_000);
    expect(state.tool_calls[0]?.result).toMatchObject({ bytes: 300_002 });
  });
});

describe("tools that need an approval", () => {
  const deploy = (executed: unknown[], expiresInMs?: number): Tool =>
    defineTool<{ to: string }, string>({
      name: "deploy",
      parse: (raw) => raw as { to: string },
      approval: {
        risk: "high",
        description: ({ to }) => `to ${to}`,
        ...(expiresInMs === undefined ? {} : { expiresInMs }),
      },
      run: (args) => {
        executed.push(args);
        return "done";
      },
    });
  const call = { name: "deploy", args: { to: "production" } };

  it("[TOOL5] are executed once it is given", async () => {
    const executed: unknown[] = [];
    const agent = caller([deploy(executed)], [call]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const approval = await openApproval(broker, ref);
    expect(approval).toMatchObject({
      operation: "deploy",
      description: "to production",
      risk_level: "high",
      default: "deny",
    });
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    expect(executed).toEqual([]);
    const { approval_id } = approval;
    await send(broker, ref, "approval.respond", { approval_id, decision: "allow" });
    const events = await ended(broker, ref);
    const state = reduced(ref, events);
    expect(state.output).toEqual([["deploy", "done"]]);
    expect(executed).toEqual([{ to: "production" }]);
    expect(state.tool_calls[0]).toMatchObject({
      requires_approval: true,
      tool_call_id: approval.tool_call_id,
    });
    expect(typesOf(events).slice(2)).toEqual([
      "tool_call.created",
      "approval.requested",
      "run.status",
      "approval.resolved",
      "run.status",
      "tool_call.status",
      "tool_call.completed",
      "run.completed",
    ]);
  });

  it("[TOOL5] are not executed when it is denied, and the agent is told by whom", async () => {
    const executed: unknown[] = [];
    const agent = caller([deploy(executed)], [call]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    const no = { approval_id, decision: "deny", reason: "not on a Friday" };
    await send(broker, ref, "approval.respond", no, { user: "bob" });
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toEqual([["deploy", "denied"]]);
    expect(state.tool_calls[0]?.error?.message).toBe("denied by bob: not on a Friday");
    expect(executed).toEqual([]);
  });

  it("[TOOL5] nor when nobody has answered in time", async () => {
    const executed: unknown[] = [];
    expect(await outputOf(caller([deploy(executed, 100)], [call]))).toEqual([
      ["deploy", "approval_expired"],
    ]);
    expect(executed).toEqual([]);
  });

  it("[TOOL5][C14] with two devices that disagree in the same millisecond it runs at most once", async () => {
    const executed: unknown[] = [];
    const agent = caller([deploy(executed)], [call]);
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await Promise.all(
      ["allow", "deny", "allow", "deny"].map((decision, i) =>
        send(broker, ref, "approval.respond", { approval_id, decision }, { user: `user ${i}` }),
      ),
    );
    const state = reduced(ref, await ended(broker, ref));
    expect(executed).toHaveLength(state.approvals[0]?.decision === "allow" ? 1 : 0);
  });
});

describe("a tool whose worker dies while it runs", () => {
  /** Its first execution never comes back. */
  async function cutShort(idempotent: boolean): Promise<{ output: unknown; executed: number }> {
    const reached = latch();
    let executed = 0;
    const tool = defineTool({
      name: "effect",
      idempotent,
      run: async () => {
        executed += 1;
        if (executed === 1) {
          reached.open();
          await latch().opened;
        }
        return "done";
      },
    });
    const agent = caller([tool], [{ name: "effect", args: null }]);
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await first.die();
    await hosted(agent);
    return { output: reduced(ref, await ended(broker, ref)).output, executed };
  }

  it("[TOOL11] is executed again if it may be", async () => {
    expect(await cutShort(true)).toEqual({ output: [["effect", "done"]], executed: 2 });
  });

  it("[TOOL11] else nobody knows what came of it, and the agent is told so", async () => {
    expect(await cutShort(false)).toEqual({
      output: [["effect", "outcome_unknown"]],
      executed: 1,
    });
  });
});

describe("calls in steps", () => {
  const counting = (): { tool: Tool; executed: () => number } => {
    let executed = 0;
    const tool = defineTool({ name: "count", run: () => ++executed });
    return { tool, executed: () => executed };
  };

  async function callOnce(
    scope: Pick<RunContext, "tools">,
    name: string,
  ): Promise<ToolOutcome | undefined> {
    for await (const outcome of scope.tools.call([{ name, args: null }])) return outcome;
    return undefined;
  }

  it("[REQ1][TOOL12] a step that is done again finds the calls of its first try", async () => {
    const { tool, executed } = counting();
    const reached = latch();
    const agent = defineAgent({
      name: unique("again"),
      tools: [tool],
      run: (ctx) =>
        ctx.step("work", async (step) => {
          const outcome = await callOnce(step, "count");
          if (ctx.attempt === 1) {
            reached.open();
            await latch().opened;
          }
          return outcome && shown(outcome);
        }),
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    await first.die();
    await hosted(agent);
    expect(reduced(ref, await ended(broker, ref)).output).toEqual(["count", 1]);
    expect(executed()).toBe(1);
  });

  it("[TOOL12] a step that is tried again keeps results, and makes the calls again that had failed", async () => {
    const { tool, executed } = counting();
    let failures = 0;
    const flaky = defineTool({
      name: "flaky",
      run: () => {
        failures += 1;
        if (failures < 3) throw new AgentError("busy", "not now", { retryable: true });
        return failures;
      },
    });
    const agent = defineAgent({
      name: unique("retries"),
      tools: [tool, flaky],
      run: (ctx) =>
        ctx.step(
          "work",
          async (step) => {
            const counted = await callOnce(step, "count");
            const tried = await callOnce(step, "flaky");
            if (!tried?.ok) throw new AgentError("busy", "again", { retryable: true });
            return [counted && shown(counted), shown(tried)];
          },
          { retries: 3, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toEqual([
      ["count", 1],
      ["flaky", 3],
    ]);
    expect(executed()).toBe(1);
    expect(state.tool_calls.map((one) => [one.name, one.status])).toEqual([
      ["count", "completed"],
      ["flaky", "failed"],
      ["flaky", "failed"],
      ["flaky", "completed"],
    ]);
  });

  it("[TOOL12] a call that outlives a failed try of its step is not begun a second time", async () => {
    const go = latch();
    let begun = 0;
    const slow = defineTool({
      name: "slow",
      run: async () => {
        begun += 1;
        await go.opened;
        return "done";
      },
    });
    const agent = defineAgent({
      name: unique("joins"),
      tools: [slow],
      run: (ctx) =>
        ctx.step(
          "work",
          async (step) => {
            const outcomes = step.tools.call([{ name: "slow", args: null }]);
            if (begun === 0) {
              await eventually(() => begun === 1);
              throw new AgentError("no_patience", "failed at once", { retryable: true });
            }
            go.open();
            for await (const outcome of outcomes) return shown(outcome);
            return undefined;
          },
          { retries: 1, backoffMs: 1 },
        ),
    });
    expect(await outputOf(agent)).toEqual(["slow", "done"]);
    expect(begun).toBe(1);
  });

  it("[TOOL12] a call that failed after a takeover is made again when its step is", async () => {
    const running = latch();
    let calls = 0;
    const flaky = defineTool({
      name: "flaky",
      idempotent: true,
      run: async () => {
        calls += 1;
        if (calls === 1) {
          running.open();
          await new Promise(() => undefined);
        }
        if (calls === 2) throw new AgentError("busy", "not yet");
        return "called";
      },
    });
    const agent = defineAgent({
      name: unique("again"),
      tools: [flaky],
      run: (ctx) =>
        ctx.step(
          "calls",
          async (step) => {
            for await (const outcome of step.tools.call([{ name: "flaky", args: null }])) {
              if (outcome.ok) return outcome.result;
            }
            throw new AgentError("again", "again", { retryable: true });
          },
          { retries: 1, backoffMs: 1 },
        ),
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    await running.opened;
    await first.die();
    await hosted(agent);
    expect(reduced(ref, await ended(broker, ref)).output).toBe("called");
    expect(calls).toBe(3);
    await first.stop();
  });

  it("[TOOL12] a try that asks the same tool for something else is not given what the failed try was", async () => {
    let executed = 0;
    let tries = 0;
    const look = defineTool({
      name: "look",
      run: (args) => {
        executed += 1;
        return { of: args };
      },
    });
    const agent = defineAgent({
      name: unique("else"),
      tools: [look],
      run: (ctx) =>
        ctx.step(
          "turn",
          async (step) => {
            tries += 1;
            const outcomes: unknown[] = [];
            const calls = [
              { name: "look", args: "same" },
              { name: "look", args: `try ${tries}` },
            ];
            for await (const outcome of step.tools.call(calls)) {
              outcomes[outcome.index] = outcome.ok ? outcome.result : outcome.error.code;
            }
            if (tries === 1) throw new AgentError("flaky", "again", { retryable: true });
            return outcomes;
          },
          { retries: 1, backoffMs: 1 },
        ),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    expect(reduced(ref, await ended(broker, ref)).output).toEqual([
      { of: "same" },
      { of: "try 2" },
    ]);
    expect(executed).toBe(3);
  });

  it("[TOOL12] a step that is done again with another tool in a call's place is not given that call's result", async () => {
    let executions = 0;
    const halted = latch();
    const tools = ["cats", "dogs"].map((name) => defineTool({ name, run: () => name }));
    const agent = defineAgent({
      name: unique("another"),
      tools,
      run: (ctx) =>
        ctx.step("turn", async (step) => {
          executions += 1;
          const name = executions === 1 ? "cats" : "dogs";
          for await (const outcome of step.tools.call([{ name, args: null }])) {
            if (executions > 1) return shown(outcome);
          }
          halted.open();
          return new Promise((_, reject) => {
            ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason));
          });
        }),
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    await halted.opened;
    await verdict(broker, ref, "run.interrupt", {});
    await send(broker, ref, "run.resume", {});
    expect(reduced(ref, await ended(broker, ref)).output).toEqual(["dogs", "dogs"]);
  });
});

describe("a shutdown", () => {
  it("[FIN5][TOOL11] lets a running tool end, and begins none", async () => {
    const reached = latch();
    const go = latch();
    const executed: string[] = [];
    const tool = (name: string): Tool =>
      defineTool({
        name,
        run: async () => {
          executed.push(name);
          reached.open();
          await go.opened;
          return name;
        },
      });
    const agent = defineAgent({
      name: unique("drains"),
      tools: [tool("first"), tool("second")],
      run: async (ctx) => {
        const told: unknown[] = [ctx.attempt];
        for (const name of ["first", "second"]) {
          for await (const outcome of ctx.tools.call([{ name, args: null }]))
            told.push(shown(outcome));
        }
        return told;
      },
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    await reached.opened;
    const stopped = first.stop();
    await hosted(agent);
    go.open();
    await stopped;
    expect(reduced(ref, await ended(broker, ref)).output).toEqual([
      2,
      ["first", "first"],
      ["second", "second"],
    ]);
    expect(executed).toEqual(["first", "second"]);
  });

  it("[REQ4] an approval is named before what else is waited for", async () => {
    const agent = defineAgent({
      name: unique("waits"),
      run: async (ctx) => {
        const all = [
          ctx.approval({ operation: "a", description: "b", expiresInMs: 300 }),
          ctx.ask({ prompt: "c" }),
        ];
        ctx.tools.call([{ name: "one", args: null }]);
        return Promise.all(all);
      },
    });
    await hosted(agent);
    const ref = await startRun(broker, agent.name, { queued: clientTools(["one"]) });
    await untilState(broker, ref, (state) => state.status === "waiting_input");
    const { inputs } = reduced(ref, await logOf(broker, ref));
    const { input_id } = inputs[0] ?? {};
    await verdict(broker, ref, "input.respond", { input_id, content: 1 });
    const statuses = ofType(await ended(broker, ref), "run.status").map((e) => e.payload.status);
    expect(statuses).toEqual(["waiting_approval", "waiting_input", "waiting_tools"]);
  });
});
