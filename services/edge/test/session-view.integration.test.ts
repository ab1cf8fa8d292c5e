import type { NewEvent } from "@throughline/protocol";
import { runStateSchema } from "@throughline/protocol/schemas";
import { eventually } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { check, comeWhileRunsGoOn, statesOf } from "./session-game.ts";
import { completed, note, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
});
afterAll(() => stage.close());

const started: NewEvent = { type: "run.started", payload: { attempt: 1, worker: "w1" } };

const question: NewEvent = {
  type: "approval.requested",
  payload: {
    approval_id: "apr_1",
    operation: "shell",
    description: "npm test",
    risk_level: "medium",
    args_hash: "h",
    expires_at: 4_000_000_000_000,
    default: "deny",
  },
};

describe("coming to a session", () => {
  test("[VIEW1] [VIEW2] a second device sees open runs, open approvals and the text so far at once, then what follows", async () => {
    const session = await stage.session(edge);
    const asking = await stage.run(session);
    await asking.writer.append(started);
    await asking.writer.append(question);
    // Behind its newest snapshot it has gone on, inside one message with several events too.
    await stage.snapshot(asking.ref, asking.writer);
    const message = { message_id: "msg_1", role: "assistant", channel: "text" } as const;
    await asking.writer.appendAll([
      { type: "message.started", payload: message },
      { type: "model.chunk", payload: { message_id: "msg_1", offset: 0, text: "so far" } },
    ]);
    const done = await stage.run(session);
    await done.writer.append(started);
    await done.writer.append(completed);
    const waiting = await stage.run(session);

    const device = await stage.connected(other);
    const subscribed = await device.subscribe({ session }, { from: "snapshot" });
    expect(subscribed).toMatchObject({ mode: "snapshot", recovered: true });
    await device.frame("caught_up");
    expect(device.frames.map((f) => f.type).slice(1)).toEqual([
      "subscribed",
      ...Array<string>(3).fill("snapshot"),
      "caught_up",
    ]);
    const states = statesOf(device);
    expect(states.get(asking.ref.run)).toMatchObject({
      status: "running",
      seq: 5,
      approvals: [{ approval_id: "apr_1", status: "open" }],
      messages: [{ text: "so far", status: "open" }],
    });
    expect(states.get(done.ref.run)).toMatchObject({ status: "completed", output: "done" });
    expect(states.get(waiting.ref.run)).toMatchObject({ status: "queued", seq: 1 });
    // The finished one comes last: the others are waited for.
    expect([...states.keys()].at(-1)).toBe(done.ref.run);

    await asking.writer.append(note("on"));
    await waiting.writer.append(started);
    const late = await stage.run(session);
    await device.until(() => device.events[2], "three events");
    check(
      device,
      new Map([
        [asking.ref.run, 6],
        [done.ref.run, 3],
        [waiting.ref.run, 2],
        [late.ref.run, 1],
      ]),
    );
  });

  test("[VIEW2] [INV2] whenever devices come to a session whose runs go on: no event twice and none missing", async () => {
    await comeWhileRunsGoOn(stage, [edge, other]);
  });

  test("[VIEW3] one who loses the link before all states came is given them again, not what follows them", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    await writer.append(note(1));
    const first = await stage.connected(edge);
    const { cursor = "" } = await first.subscribe({ session }, { from: "snapshot" });
    first.terminate();
    const second = await stage.connected(other);
    expect(await second.subscribe({ session }, { cursor })).toMatchObject({
      recovered: false,
      mode: "snapshot",
    });
    await second.frame("caught_up");
    expect(statesOf(second).get(ref.run)).toMatchObject({ seq: 2 });
    // With the cursor of `caught_up` it goes on.
    const third = await stage.connected(edge);
    const after = second.cursor;
    expect(await third.subscribe({ session }, { cursor: after })).toMatchObject({
      recovered: true,
    });
    await writer.append(note(2));
    await third.until(() => third.seqs()[0], "an event");
    expect(third.frames.filter((f) => f.type === "snapshot")).toEqual([]);
    expect(third.seqs()).toEqual([3]);
  });

  test("[VIEW4] [SUB7] [STATE1] states that fit no frame are named, and fetched as of then", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 6; i += 1) {
      const value = `${i}${"x".repeat(100_000)}`;
      await writer.append({ type: "memory.updated", payload: { key: `k${i}`, value } });
    }
    await stage.snapshot(ref, writer);
    for (const request of [{ session }, ref]) {
      const device = await stage.connected(edge);
      await device.subscribe(request, { from: "snapshot" });
      const frame = await device.frame("snapshot");
      expect([frame.state, frame.state_url]).toEqual([
        undefined,
        `/v1/sessions/${session}/runs/${ref.run}`,
      ]);
    }
    await writer.append(note("one more"));
    const fetched = await get(`/v1/sessions/${session}/runs/${ref.run}`);
    const state = runStateSchema.parse(fetched.state);
    expect(state.seq).toBe(8);
    expect(Object.keys(state.memory)).toHaveLength(6);
  });

  test("[VIEW5] [INV8] a cursor from before what is kept gets states and the tail, over WebSocket and as a page", async () => {
    const own = await Stage.open({ eventsMaxAgeMs: 2_000 });
    try {
      const node = await own.edge();
      const session = await own.session(node);
      const old = await own.run(session);
      await old.writer.append(note("old"));
      const device = await own.connected(node);
      await device.subscribe({ session });
      await device.until(() => device.events[1], "two events");
      const { cursor } = device;
      device.terminate();
      await old.writer.append(completed);
      await own.snapshot(old.ref, old.writer);
      const going = await own.run(session);
      const filter = { kind: "run", ...old.ref } as const;
      await eventually(
        async () => {
          await going.writer.append(note("on"));
          await own.snapshot(going.ref, going.writer);
          return (await own.broker.events.last(filter, "leader")) === undefined;
        },
        { timeoutMs: 20_000, what: "the first run's events expire" },
      );
      const back = await own.connected(await own.edge());
      expect(await back.subscribe({ session }, { cursor })).toMatchObject({
        recovered: false,
        reason: "cursor_expired",
        mode: "snapshot",
      });
      await back.frame("caught_up");
      // The index does not know them here: what is gone from the log is not shown.
      const state = statesOf(back).get(going.ref.run);
      expect(state).toMatchObject({ status: "queued", seq: going.writer.stored.seq });
      const page = await get(`/v1/sessions/${session}/events?cursor=${cursor}`, node);
      expect(page).toMatchObject({
        recovered: false,
        reason: "cursor_expired",
        events: [],
        snapshots: [{ run_id: going.ref.run, state: { seq: going.writer.stored.seq } }],
      });
      await going.writer.append(note("more"));
      await back.until(() => back.events[0], "an event");
      check(back, new Map([[going.ref.run, going.writer.stored.seq]]));
      const more = await get(`/v1/sessions/${session}/events?cursor=${String(page.cursor)}`, node);
      expect(more).toMatchObject({ recovered: true, events: [{ seq: going.writer.stored.seq }] });
    } finally {
      await own.close();
    }
  });
});

async function get(path: string, node: Edge = edge): Promise<Record<string, unknown>> {
  const headers = { authorization: "Bearer dev.acme.ann" };
  const response = await fetch(`http://127.0.0.1:${node.port}${path}`, { headers });
  const body: unknown = await response.json();
  if (typeof body !== "object" || body === null) throw new Error("no JSON object");
  return { ...body };
}
