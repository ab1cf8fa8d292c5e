import { initialRunState, type NewEvent, reduce, type RunState } from "@throughline/protocol";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { bodyHash, type Broker, openBroker, type RunRef, type RunWriter } from "../src/index.ts";
import { openSweep, type SweepOptions } from "../src/sweep.ts";
import { eventsOf, freshRun, wholeLog } from "./harness.ts";
import { ACK_WAIT_MS, freshAgent, type TestWorker, testWorker } from "./queue-harness.ts";

let nats: NatsServer;
let edge: Broker;
const closing: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  nats = await startNats();
  edge = await openBroker({ servers: [nats.url], name: "edge", shards: 2 });
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});
afterAll(async () => {
  await edge.close();
  await nats.dispose();
});

async function start(ref: RunRef, agent: string, deadlineMs = 60_000): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  const payload = { agent, input: 1, by: "ann", deadline };
  const hash = bodyHash(payload);
  await edge.events.start({ ref, agent, user: "ann", commandId: "c1", hash, deadline, payload });
}

/** Resolves to where it was stored. */
async function cancel(ref: RunRef, id = "stop"): Promise<number> {
  const outcome = await edge.commands.publish({
    ref,
    user: "böb",
    hash: id,
    command: {
      type: "run.cancel",
      id,
      session_id: ref.session,
      run_id: ref.run,
      payload: { reason: "enough" },
    },
  });
  if (outcome.outcome === "conflict") throw new Error("another command has this id");
  return outcome.streamSeq;
}

/** Asks for the agents that are offered: none, unless told so. Looks are counted. */
function offering(...agents: string[]): SweepOptions["agents"] & { readonly looks: string[] } {
  const looks: string[] = [];
  const offered = (agent: string): Promise<boolean> => {
    looks.push(agent);
    return Promise.resolve(agents.includes(agent));
  };
  return { ttlMs: 400, offered, looks };
}

async function sweep(over: Partial<SweepOptions> = {}): Promise<{ warnings: string[] }> {
  const warnings: string[] = [];
  const made = openSweep(edge, {
    worker: "w_sweep",
    queueTimeoutMs: 60_000,
    ackWaitMs: ACK_WAIT_MS,
    graceMs: 200,
    takeUpMs: 100,
    agents: offering(),
    onWarning: (text) => warnings.push(text),
    ...over,
  });
  closing.push(() => made.stop());
  await made.ready;
  return { warnings };
}

async function worker(agent: string, ackWaitMs = 60_000): Promise<TestWorker> {
  const made = await testWorker({ servers: [nats.url], agent, ackWaitMs });
  closing.push(() => made.die());
  return made;
}

/** A run in the middle of its work: everything that can be open is. */
async function leftOpen(ref: RunRef, agent: string): Promise<RunWriter> {
  const made = await worker(agent);
  const writer = await (await made.given(ref)).begun;
  await writer.appendAll([
    { type: "step.started", payload: { step_id: "s1", name: "outer" } },
    { type: "step.started", payload: { step_id: "s2", name: "inner", parent_step_id: "s1" } },
    {
      type: "message.started",
      payload: { message_id: "m1", role: "assistant", channel: "text" },
    },
    { type: "model.chunk", payload: { message_id: "m1", offset: 0, text: "So far" } },
    {
      type: "tool_call.created",
      payload: {
        tool_call_id: "t1",
        name: "shell",
        args: {},
        executor: "client",
        requires_approval: true,
      },
    },
    {
      type: "approval.requested",
      payload: {
        approval_id: "a1",
        tool_call_id: "t1",
        operation: "shell",
        description: "ls",
        risk_level: "low",
        args_hash: "h",
        expires_at: Date.now() + 60_000,
        default: "deny",
      },
    },
  ]);
  await made.die();
  return writer;
}

const CLOSED: readonly NewEvent["type"][] = [
  "tool_call.failed",
  "approval.resolved",
  "message.completed",
  "step.failed",
  "step.failed",
];

function ended(ref: RunRef): Promise<unknown> {
  const look = async (): Promise<unknown> =>
    (await edge.events.last({ kind: "run", ...ref }, "leader"))?.end;
  return eventually(look, { timeoutMs: 10_000, what: `${ref.run} has ended` });
}

async function typesOf(ref: RunRef): Promise<string[]> {
  return (await wholeLog(edge, ref)).flatMap(eventsOf).map((event) => event.type);
}

async function stateOf(ref: RunRef): Promise<RunState> {
  const events = (await wholeLog(edge, ref)).flatMap(eventsOf);
  return events.reduce<RunState>(reduce, initialRunState(ref.run));
}

describe("a run that is cancelled and has no worker", () => {
  test("[SWP9] [INV4] [INV5] is ended within moments while it is queued, and answers its command", async () => {
    const ref = freshRun();
    await start(ref, freshAgent());
    const { warnings } = await sweep();
    const at = await cancel(ref);
    await ended(ref);
    const [queued, end] = await wholeLog(edge, ref);
    expect(end && eventsOf(end)).toMatchObject([
      {
        type: "run.cancelled",
        seq: 2,
        reply_to: "stop",
        reply_by: "böb",
        payload: { by: "böb", reason: "enough" },
      },
    ]);
    expect(end).toMatchObject({ prev: queued?.streamSeq, epoch: queued?.epoch, cmd: at });
    expect(warnings).toEqual([]);
  });

  test("[SWP9] is left to a worker that takes it up in time", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    await start(ref, agent);
    const agents = offering(agent);
    await sweep({ agents });
    await (
      await (await worker(agent)).given(ref)
    ).begun;
    await cancel(ref);
    await eventually(() => agents.looks.includes(agent));
    expect(await typesOf(ref)).toEqual(["run.queued", "run.started"]);
  });

  test("[SWP9] is found when its job is due, if no sweep heard of it", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    await start(ref, agent);
    await cancel(ref);
    await sweep({ queueTimeoutMs: 200, agents: offering(agent) });
    await ended(ref);
    expect(await typesOf(ref)).toEqual(["run.queued", "run.cancelled"]);
  });

  test("[SWP9] [SWP10] [C24] is ended too when its worker has died and nobody offers its agent", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    await start(ref, agent);
    await leftOpen(ref, agent);
    await sweep();
    await cancel(ref);
    await ended(ref);
    expect((await typesOf(ref)).slice(8)).toEqual([...CLOSED, "run.cancelled"]);
    expect(await stateOf(ref)).toMatchObject({
      status: "cancelled",
      approvals: [{ decision: "deny", reason: "cancelled", by: "böb" }],
      steps: [{ error: { code: "cancelled" } }, { error: { code: "cancelled" } }],
    });
  });

  test("[SWP9] [INV3] in a race with a worker that takes it up, one of them has it", async () => {
    const agent = freshAgent();
    const refs = Array.from({ length: 30 }, () => freshRun());
    await Promise.all(refs.map((ref) => start(ref, agent)));
    await sweep({ takeUpMs: 0, agents: offering(agent) });
    const made = await worker(agent);
    await Promise.all(refs.map((ref) => cancel(ref)));
    for (const ref of refs) {
      const types = await eventually(async () => {
        const now = await typesOf(ref);
        return now.length > 1 && now;
      });
      expect([
        ["run.queued", "run.cancelled"],
        ["run.queued", "run.started"],
      ]).toContainEqual(types);
    }
    await made.queue.stop();
    for (const { claim } of made.works) claim.abandon();
  });

  test("[SWP9] a notice that names no run, or more than one, is nobody's", async () => {
    const ref = freshRun();
    const agents = offering();
    await start(ref, freshAgent());
    const { warnings } = await sweep({ agents });
    for (const bad of ['{"tenant":"acme","session":"*","run":"*"}', "[]", "no json", "null"]) {
      edge.nc.publish("tl.ctl.cancel", bad);
    }
    await cancel(ref);
    await ended(ref);
    expect(warnings).toEqual([]);
  });
});

describe("a run that its deadline ends", () => {
  test("[SWP10] [C24] what is open is closed first, in the terminal's own message", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    await start(ref, agent, 1_500);
    await leftOpen(ref, agent);
    await sweep({ queueTimeoutMs: 200, agents: offering(agent) });
    await ended(ref);
    const log = await wholeLog(edge, ref);
    const last = log.at(-1);
    expect(last && eventsOf(last).map((event) => event.type)).toEqual([...CLOSED, "run.failed"]);
    expect(last).toMatchObject({ attempt: 2, prev: log.at(-2)?.streamSeq });
    const state = await stateOf(ref);
    expect(state).toMatchObject({ status: "failed", error: { code: "deadline" } });
    expect(state.messages).toMatchObject([{ text: "So far", finish_reason: "error" }]);
    // Whoever looks the run up later finds it ended.
    const snapshot = await eventually(() => edge.snapshots.read(ref, "leader"));
    expect(snapshot).toMatchObject({
      seq: state.seq,
      streamSeq: last?.streamSeq,
      attempt: 2,
      state,
    });
    expect(await eventually(() => edge.runs.get(ref))).toMatchObject({
      agent,
      status: "failed",
      by: "ann",
      ended_at: state.ended_at,
    });
  });

  test("[SWP11] [INV5] a cancellation that was stored before is not overridden", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    await start(ref, agent, 1_500);
    await leftOpen(ref, agent);
    const at = await cancel(ref);
    await cancel(ref, "again");
    await sweep({ queueTimeoutMs: 200, agents: offering(agent) });
    await ended(ref);
    const last = await edge.events.last({ kind: "run", ...ref }, "leader");
    expect(last?.cmd).toBe(at);
    expect(last && eventsOf(last).at(-1)).toMatchObject({
      type: "run.cancelled",
      reply_to: "stop",
    });
  });

  test("[SWP8] its owner may still end it itself for a while", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    const deadline = Date.now() + 1_000;
    await start(ref, agent, 1_000);
    await sweep({ queueTimeoutMs: 200, graceMs: 3_000, agents: offering(agent) });
    const made = await worker(agent);
    const writer = await (await made.given(ref)).begun;
    await eventually(() => Date.now() > deadline + 300, { timeoutMs: 3_000 });
    const failure = { code: "deadline", message: "by its owner", retryable: false };
    await writer.append({ type: "run.failed", payload: failure });
    expect(await stateOf(ref)).toMatchObject({ error: { message: "by its owner" } });
  });

  test("[SWP10] [INV4] is ended though its log has a hole, and that is told", async () => {
    const ref = freshRun();
    const agent = freshAgent();
    await start(ref, agent, 1_500);
    const writer = await leftOpen(ref, agent);
    const shard = edge.shardOf(ref.session);
    const [, started] = await wholeLog(edge, ref);
    await edge.jsm.streams.deleteMessage(`TL_EV_${shard}`, started?.streamSeq ?? 0);
    const { warnings } = await sweep({ queueTimeoutMs: 200, agents: offering(agent) });
    await ended(ref);
    const last = await edge.events.last({ kind: "run", ...ref }, "leader");
    expect(last).toMatchObject({ firstSeq: writer.seq + 1, lastSeq: writer.seq + 1 });
    expect(warnings).toEqual([`${ref.run} is ended without closing what is open in it`]);
  });
});
