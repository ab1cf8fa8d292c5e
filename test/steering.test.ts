/** Runs that are stopped, paused and asked for the same thing twice, from wherever. */
import { type Edge, eventually, type Service } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Frame, RawClient } from "./raw-client.ts";
import { LATE, type Op } from "./script.ts";
import { answerInLog, eventOf, order, startScript, type Target } from "./scripted-run.ts";
import { stateOf } from "./settled.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let one: Edge;
let two: Edge;
let worker: Service;

beforeAll(async () => {
  world = await startWorld();
  [one, two, worker] = await Promise.all([world.edge(), world.edge(), world.worker()]);
});
afterAll(() => world.dispose());

let left: RawClient;
let right: RawClient;
let session: string;

beforeEach(async () => {
  [left, right] = await Promise.all([
    RawClient.connect(one.connectUrl),
    RawClient.connect(two.connectUrl),
  ]);
  session = await left.createSession();
  await left.subscribe(session);
});
afterEach(() => {
  left.terminate();
  right.terminate();
});

/** Everything that can be open, open at once: a step that writes, calls of both sides, an approval, an input. */
const BUSY: Op = {
  op: "all",
  do: [
    { op: "step", name: "write", do: [{ op: "stream", words: 2_000, everyMs: 5 }] },
    {
      op: "tools",
      calls: [
        { name: "slow", args: { ms: 20_000, mark: "busy" } },
        { name: "look", args: {} },
      ],
    },
    { op: "approval", operation: "publish" },
    { op: "input", prompt: "Where to?" },
  ],
};

async function busy(client: RawClient, then: readonly Op[] = []): Promise<Target> {
  const target = await startScript(client, session, [BUSY, ...then], { tools: ["look"] });
  await Promise.all([
    eventOf(client, target, "approval.requested"),
    eventOf(client, target, "input.requested"),
    eventOf(client, target, "tool_call.created", (p) => p["name"] === "look"),
    eventOf(client, target, "tool_call.status", (p) => p["status"] === "running"),
    client.frame((f) => f.run_id === target.run && f.type === "model.delta"),
  ]);
  return target;
}

/** What is open in the log up to an event of a type, that one left out. */
async function openBefore(target: Target, type: string): Promise<string[]> {
  const log = await world.log(target.session, target.run);
  const end = log.findIndex((event) => event.type === type);
  expect(end).toBeGreaterThan(0);
  const state = stateOf(log.slice(0, end), target.run);
  return [
    ...state.messages.filter((m) => m.status === "open").map(() => "message"),
    ...state.steps.filter((s) => s.status === "running").map(() => "step"),
    ...state.tool_calls
      .filter((c) => c.status !== "completed" && c.status !== "failed")
      .map(() => "tool call"),
    ...state.approvals.filter((a) => a.status === "open").map(() => "approval"),
    ...state.inputs.filter((i) => i.status === "open").map(() => "input"),
  ];
}

describe("[C08] a run started through one node is cancelled through another", () => {
  test("[INV5] by a client that resumed there: the worker aborts, and the first node's viewers see it", async () => {
    const target = await busy(left);
    const { cursor } = left.events(target.run).at(-1) ?? {};
    await right.subscribe(session, target.run, { cursor });
    const id = order(right, target, "run.cancel", { reason: "enough" });
    const seen = await Promise.all([left.terminal(target.run), right.terminal(target.run)]);
    for (const frame of seen)
      expect(frame).toMatchObject({
        type: "run.cancelled",
        reply_to: id,
        payload: { reason: "enough", by: "ann" },
      });
    await eventually(() => world.effects().includes("stopped busy"), {
      what: "the tool is aborted",
    });
  });
});

describe("[C24] in the middle of tool calls", () => {
  test("a cancellation closes every call, approval, message and step before the end; the session's next run is well", async () => {
    const target = await busy(left);
    order(left, target, "run.cancel");
    expect((await left.terminal(target.run)).type).toBe("run.cancelled");
    expect(await openBefore(target, "run.cancelled")).not.toContain("tool call");
    const open = await openBefore(target, "run.cancelled");
    for (const thing of ["tool call", "approval", "message", "step"])
      expect(open).not.toContain(thing);
    const next = await startScript(left, session, [
      { op: "tools", calls: [{ name: "double", args: { n: 2 } }] },
    ]);
    expect((await left.terminal(next.run)).payload?.["output"]).toEqual([[{ doubled: 4 }]]);
  });

  test("an interrupt closes all but input requests, nothing of the stopped step follows, and the run can go on", async () => {
    const target = await busy(left, [{ op: "say", text: "at last" }]);
    const id = order(right, target, "run.interrupt", { reason: "wait" });
    const interrupted = await eventOf(left, target, "run.interrupted");
    expect(interrupted).toMatchObject({
      reply_to: id,
      payload: { reason: "wait", preserve_context: true, by: "ann" },
    });
    expect(await openBefore(target, "run.interrupted")).toEqual(["input"]);
    const failed = left
      .events(target.run)
      .filter((f) => f.type === "tool_call.failed")
      .map((f) => f.payload?.["error"]);
    expect(failed).toMatchObject([{ code: "interrupted" }, { code: "interrupted" }]);

    // The worker that writes for 10 s is given the time for a few words more: that of three answers.
    for (let n = 0; n < 3; n += 1) {
      const again = order(right, target, "run.interrupt");
      expect(await answerInLog(left, again)).toMatchObject({ payload: { code: "not_allowed" } });
    }
    const at = left.frames.indexOf(interrupted);
    const models = (frames: readonly Frame[]): Frame[] =>
      frames.filter((f) => f.run_id === target.run && f.type.startsWith("model."));
    expect(models(left.frames.slice(at))).toEqual([]);

    const resume = order(right, target, "run.resume");
    expect(await answerInLog(left, resume)).toMatchObject({
      type: "run.resumed",
      payload: { attempt: 1 },
    });
    // It writes anew what it was stopped at.
    await left.frame((f) => left.frames.indexOf(f) > at && f.type === "model.delta");
    order(left, target, "run.cancel");
    await left.terminal(target.run);
  });

  test("a run goes on after an interrupt to its end, with what was decided before", async () => {
    const target = await startScript(
      left,
      session,
      [
        { op: "tools", calls: [{ name: "look", args: {} }] },
        { op: "step", name: "wait", do: [{ op: "input", prompt: "Go?" }] },
        { op: "say", text: "done" },
      ],
      { tools: ["look"] },
    );
    const { payload } = await eventOf(left, target, "tool_call.created");
    const seen = { tool_call_id: payload?.["tool_call_id"], result: "seen" };
    order(left, target, "tool_result.report", seen);
    const asked = await eventOf(left, target, "input.requested");
    order(left, target, "run.interrupt");
    await eventOf(left, target, "run.interrupted");
    // Asked before, answered while the run is paused.
    const input_id = asked.payload?.["input_id"];
    const reply = order(right, target, "input.respond", { input_id, content: "go" });
    expect((await answerInLog(left, reply)).type).toBe("input.received");
    const go = order(right, target, "run.continue", { content: "carry on" });
    expect(await answerInLog(left, go)).toMatchObject({
      type: "input.received",
      payload: { content: "carry on", queued: false },
    });
    const end = await left.terminal(target.run);
    expect(end.payload?.["output"]).toEqual([["seen"], ["go"], null]);
    const log = await world.log(session, target.run);
    expect(log.filter(({ type }) => type === "tool_call.created").length).toBe(1);
  });
});

describe("[C21] a command's id comes again with another content", () => {
  test("[INV5] `idempotency_conflict` over WebSocket, 409 over HTTP; the first one stands", async () => {
    const target = await startScript(left, session, [{ op: "input", prompt: "Where to?" }]);
    const { payload } = await eventOf(left, target, "input.requested");
    const input_id = payload?.["input_id"];
    const other = await startScript(left, session, [{ op: "approval", operation: "publish" }]);
    const asked = await eventOf(left, other, "approval.requested");
    const approval_id = asked.payload?.["approval_id"];

    const first = order(left, other, "approval.respond", { approval_id, decision: "deny" });
    await left.frame((f) => f.id === first && f.type === "command.accepted");
    order(right, other, "approval.respond", { approval_id, decision: "allow" }, first);
    const refused = await right.frame((f) => f.id === first);
    // Once the run has ended that may be said instead: nothing was stored either way.
    expect(refused.type).toBe("command.rejected");
    expect(["idempotency_conflict", "run_ended"]).toContain(refused.code);
    expect((await left.terminal(other.run)).payload?.["output"]).toMatchObject([
      { decision: "deny" },
    ]);

    const post = (edge: Edge, content: string): Promise<Response> =>
      fetch(`${edge.url}/v1/sessions/${session}/runs/${target.run}/commands`, {
        method: "POST",
        headers: {
          authorization: "Bearer dev.acme.ann",
          "content-type": "application/json",
          "idempotency-key": "from-http",
        },
        body: JSON.stringify({ type: "run.continue", payload: { content } }),
      });
    expect((await post(one, "a")).status).toBe(202);
    expect((await post(two, "a")).status).toBe(202);
    const conflict = await post(two, "b");
    expect(conflict.status).toBe(409);
    expect(await conflict.json()).toMatchObject({ code: "idempotency_conflict" });
    order(right, target, "run.continue", { content: "c" }, "from-http");
    expect(await right.frame((f) => f.id === "from-http")).toMatchObject({
      type: "command.rejected",
      code: "idempotency_conflict",
    });
    order(left, target, "input.respond", { input_id, content: "home" });
    await left.terminal(target.run);
    const log = await world.log(session, target.run);
    expect(
      log.flatMap((e) =>
        e.type === "input.received" && e.reply_to === "from-http" ? [e.payload.content] : [],
      ),
    ).toEqual(["a"]);
  });
});

describe("a cancellation that comes early", () => {
  test("of a queued run that nobody offers, and by the start's id: it ends before an agent runs", async () => {
    const target = await startScript(left, session, [{ op: "say", text: "no" }], { agent: LATE });
    const cancel = order(right, target, "run.cancel", { reason: "changed my mind" });
    expect(await left.terminal(target.run)).toMatchObject({
      type: "run.cancelled",
      reply_to: cancel,
      payload: { reason: "changed my mind", by: "ann" },
    });

    const start = left.send({
      type: "run.start",
      session_id: session,
      payload: { agent: LATE, input: { do: [] } },
    });
    const accepted = await left.frame((f) => f.id === start && f.type === "command.accepted");
    const byStart = await right.ask({
      type: "run.cancel",
      session_id: session,
      payload: { start_id: start },
    });
    expect(byStart).toMatchObject({ type: "command.accepted", run_id: accepted.run_id });
    const end = await left.terminal(accepted.run_id ?? "");
    expect(end.type).toBe("run.cancelled");
    const log = await world.log(session, accepted.run_id ?? "");
    expect(log.filter(({ type }) => type === "message.started")).toEqual([]);
  });
});

describe("a tool that must not be executed twice", () => {
  test("[INV3] its worker dies while it runs: it was executed once, and the agent is told `outcome_unknown`", async () => {
    const target = await startScript(left, session, [
      { op: "tools", calls: [{ name: "once", args: { ms: 20_000, mark: "killed" } }] },
    ]);
    const line = "once killed";
    await eventually(() => world.effects().includes(line));
    await worker.kill();
    await worker.restart();
    const end = await left.terminal(target.run);
    expect(end.payload?.["output"]).toEqual([[{ code: "outcome_unknown" }]]);
    expect(world.effects().filter((each) => each === line).length).toBe(1);
  });
});
