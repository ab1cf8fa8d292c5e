import { describe, expect, it } from "vitest";
import { isApplied, type NewEvent, type RunState } from "../src/index.ts";
import { durableEventSchema } from "../src/schemas.ts";
import {
  RUN,
  after,
  called,
  chunk,
  interrupted,
  opened,
  resumed,
  running,
  step,
  stored,
  writing,
} from "./events.ts";

describe("steps and things that are done again", () => {
  it("[RED13] opening events with a known id start anew, in their place", () => {
    const two = after(writing, chunk(0, "old"), opened("msg_2"), opened());
    expect(two.messages.map(({ message_id, text }) => [message_id, text])).toEqual([
      ["msg_1", ""],
      ["msg_2", ""],
    ]);

    const error = { code: "x", message: "", retryable: true };
    const failed = after(running, step("a"), step("b"), {
      type: "step.failed",
      payload: { step_id: "a", error },
    });
    const again = after(failed, step("a"));
    expect(again.steps).toEqual([
      { step_id: "a", name: "a", key: "run/a#0", status: "running", started_seq: 6 },
      { step_id: "b", name: "b", key: "run/b#0", status: "running", started_seq: 4 },
    ]);

    const call = after(
      running,
      called,
      { type: "tool_call.failed", payload: { tool_call_id: "tc_1", error } },
      called,
    );
    expect(call.tool_calls).toMatchObject([{ status: "pending", event_id: `${RUN}.5` }]);
    expect(call.tool_calls[0]).not.toHaveProperty("error");
  });

  it("[RED14] a superseded step takes its own messages with it, and nothing else", () => {
    const end = (id: string): NewEvent => ({
      type: "message.completed",
      payload: { message_id: id, length: 0, finish_reason: "stop" },
    });
    const before = after(
      running,
      step("outer"),
      opened("of_outer", "outer"),
      end("of_outer"),
      { ...called, step_id: "outer" },
      step("inner", "outer"),
      opened("of_inner", "inner"),
      end("of_inner"),
      { type: "step.completed", payload: { step_id: "inner" } },
      opened("of_run"),
    );
    const now = after(before, { type: "step.superseded", payload: { step_id: "outer" } });
    expect(now.steps.map((one) => one.status)).toEqual(["superseded", "completed"]);
    expect(now.messages.map((one) => one.status)).toEqual(["superseded", "completed", "open"]);
    expect(now.tool_calls).toBe(before.tool_calls);
  });

  it("[RED15] a takeover keeps a pause and a wait", () => {
    const waiting = after(running, { type: "run.status", payload: { status: "waiting_approval" } });
    expect(after(waiting, resumed(2))).toMatchObject({
      status: "waiting_approval",
      attempt: 2,
      worker: "w2",
    });
    const paused = after(running, interrupted);
    expect(after(paused, resumed(2))).toMatchObject({
      status: "interrupted",
      stopped: { by: "bob", reason: "wait" },
    });
    const on = after(paused, resumed(2), resumed(2));
    expect(on).toMatchObject({ status: "running", attempt: 2 });
    expect(on).not.toHaveProperty("stopped");
  });

  it("[RED20] counts attempts that bring the run no further", () => {
    const useless = [
      resumed(2),
      step("a"),
      opened(),
      chunk(0, "x"),
      resumed(3),
      { type: "run.status", payload: { status: "running" } },
    ] as const;
    const idle = after(running, ...useless, resumed(4));
    expect(running.idle_attempts).toBe(1);
    expect(idle.idle_attempts).toBe(4);
    const further = after(idle, { type: "step.completed", payload: { step_id: "a" } });
    expect(further.idle_attempts).toBe(0);
    expect(after(further, resumed(4)).idle_attempts).toBe(0);
    expect(after(further, resumed(5)).idle_attempts).toBe(1);
  });
});

describe("requests", () => {
  it("[RED16] the first outcome of a tool call stands", () => {
    const done = after(running, called, {
      type: "tool_call.completed",
      payload: { tool_call_id: "tc_1", result: 1 },
    });
    const more: NewEvent[] = [
      { type: "tool_call.completed", payload: { tool_call_id: "tc_1", result: 2 } },
      {
        type: "tool_call.failed",
        payload: { tool_call_id: "tc_1", error: { code: "x", message: "", retryable: true } },
      },
      { type: "tool_call.status", payload: { tool_call_id: "tc_1", status: "running" } },
    ];
    expect(after(done, ...more).tool_calls).toBe(done.tool_calls);
    // When it came: an agent that is executed again is told of several outcomes in the same order.
    expect(done.tool_calls).toMatchObject([{ status: "completed", outcome_seq: done.seq }]);
    const broken = after(running, called, ...more.slice(1));
    expect(broken.tool_calls).toMatchObject([{ status: "failed", outcome_seq: done.seq }]);
  });

  it("[RED16] the first answer to an approval stands", () => {
    const approval_id = "apr_1";
    const asked = after(running, {
      type: "approval.requested",
      payload: {
        approval_id,
        operation: "shell",
        description: "",
        risk_level: "high",
        args_hash: "h",
        expires_at: 5,
        default: "deny",
      },
    });
    expect(asked.approvals).toMatchObject([{ status: "open", event_id: `${RUN}.3` }]);
    const decided = after(asked, {
      type: "approval.resolved",
      payload: { approval_id, decision: "deny", by: "bob" },
    });
    expect(decided.approvals).toMatchObject([{ status: "resolved", decision: "deny", by: "bob" }]);
    const late = after(decided, {
      type: "approval.resolved",
      payload: { approval_id, decision: "allow", by: "eve" },
    });
    expect(late.approvals).toBe(decided.approvals);
  });

  it("[RED16] the first answer to an input stands; without an input it goes to the inbox", () => {
    const asked = after(running, {
      type: "input.requested",
      payload: { input_id: "inp_1", prompt: "?" },
    });
    const answer = (content: string | null): NewEvent => ({
      type: "input.received",
      payload: { input_id: "inp_1", content, by: "bob" },
    });
    const given = after(asked, answer(null), answer("late"));
    expect(given.inputs).toMatchObject([{ status: "received", content: null, by: "bob" }]);
    expect(given.inbox).toEqual([]);
    const told = after(given, { type: "input.received", payload: { content: "go", queued: true } });
    expect(told.inbox).toEqual([{ event_id: `${RUN}.6`, content: "go", queued: true }]);
  });

  it("[RED17] a claim lapses lease_ms after its event, and pending frees the call", () => {
    const status = (rest: object): NewEvent => ({
      type: "tool_call.status",
      payload: { tool_call_id: "tc_1", status: "claimed", ...rest },
    });
    const claimed = after(running, called, status({ claim_id: "clm_1", lease_ms: 500, by: "bob" }));
    expect(claimed.tool_calls).toMatchObject([
      { status: "claimed", claim: { claim_id: "clm_1", by: "bob", expires_at: 4_500 } },
    ]);
    const runs = after(claimed, status({ status: "running" }));
    expect(runs.tool_calls).toMatchObject([{ status: "running", claim: { claim_id: "clm_1" } }]);
    const free = after(runs, status({ status: "pending" }));
    expect(free.tool_calls[0]).not.toHaveProperty("claim");
  });

  it("[RED18] remembers the commands that were answered, and whose they were", () => {
    const state = after(
      running,
      { type: "custom", payload: { name: "n", value: 1 }, reply_to: "cmd_1", reply_by: "bob" },
      { type: "custom", payload: { name: "n", value: 1 }, reply_to: "cmd_1", reply_by: "bob" },
      { type: "custom", payload: { name: "n", value: 1 }, reply_to: "cmd_2" },
    );
    expect(state.applied).toEqual({ "cmd_1 alice": 1, "cmd_1 bob": 3, cmd_2: 5 });
    expect(isApplied(state, "cmd_1", "alice")).toBe(true);
    expect(isApplied(state, "cmd_1", "eve")).toBe(false);
    expect(isApplied(state, "cmd_2", "eve")).toBe(true);
    expect(isApplied(state, "constructor", "toString")).toBe(false);
  });
});

describe("results", () => {
  it("[RED19] counts keyed events that open nothing", () => {
    const emit = (key: string): NewEvent => ({
      type: "custom",
      payload: { name: "n", value: 0 },
      key,
    });
    const state = after(running, emit("run/n#0"), emit("run/n#1"), emit("run/a#b/n#0"), step("a"), {
      type: "custom",
      payload: { name: "n", value: 0 },
    });
    expect(state.emits).toEqual({ "run/n": 2, "run/a#b/n": 1 });
    // A name that every object has by itself.
    expect(after(running, emit("constructor#0")).emits).toEqual({ constructor: 1 });
  });

  it("[RED21] usage adds up, and the run's end has the last word", () => {
    const spend = (model: string, input_tokens: number, rest: object = {}): NewEvent => ({
      type: "usage.updated",
      payload: { model, input_tokens, output_tokens: 1, ...rest },
    });
    const spent = after(
      running,
      spend("a", 10),
      spend("a", 5, { reasoning_tokens: 3 }),
      spend("b", 1),
    );
    expect(spent.usage).toEqual({
      total: { input_tokens: 16, output_tokens: 3, reasoning_tokens: 3 },
      models: {
        a: { input_tokens: 15, output_tokens: 2, reasoning_tokens: 3 },
        b: { input_tokens: 1, output_tokens: 1 },
      },
    });
    const usage = { input_tokens: 99, output_tokens: 9 };
    expect(after(spent, { type: "run.completed", payload: { usage } }).usage).toEqual({
      ...spent.usage,
      total: usage,
    });
  });

  it("[RED22] memory keeps and forgets, and takes no __proto__", () => {
    const set = (key: string, value: object | number | null): NewEvent => ({
      type: "memory.updated",
      payload: { key, value },
    });
    // A worker's own, under the longest key that an operation's place can be.
    const note = `@inbox/${"p".repeat(512)}`;
    const state = after(
      running,
      set("a", 1),
      set("b", 2),
      set("a", null),
      set("__proto__", { evil: true }),
      set("none", null),
      set(note, 3),
    );
    expect(state.memory).toStrictEqual({ b: 2, [note]: 3 });
    expect(durableEventSchema.safeParse(stored(1, set(note, 3))).success).toBe(true);
    const spent = after(state, {
      type: "usage.updated",
      payload: { model: "__proto__", input_tokens: 1, output_tokens: 1 },
    });
    expect(Object.keys(spent.usage.models)).toEqual([]);
    expect(Object.getPrototypeOf(spent.memory)).toBe(Object.prototype);
  });

  it("[RED22] application state is patched, or given anew", () => {
    const patched = after(running, {
      type: "state.updated",
      payload: { patch: { a: { b: 1, c: 2 } } },
    });
    expect(
      after(patched, { type: "state.updated", payload: { patch: { a: { b: null } } } }).app,
    ).toEqual({ a: { c: 2 } });
    expect(after(patched, { type: "state.updated", payload: { state: [1] } }).app).toEqual([1]);
  });

  it("[RED23] keeps how a run ended", () => {
    const end = (event: NewEvent): RunState => after(running, event);
    expect(end({ type: "run.completed", payload: { output: { n: 1 } } })).toMatchObject({
      status: "completed",
      output: { n: 1 },
      ended_at: 3_000,
    });
    const error = { code: "deadline", message: "too late", retryable: false };
    expect(end({ type: "run.failed", payload: error })).toMatchObject({ status: "failed", error });
    expect(end({ type: "run.cancelled", payload: { by: "bob" } })).toMatchObject({
      status: "cancelled",
      stopped: { by: "bob" },
    });
  });
});
