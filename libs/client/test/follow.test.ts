/** Following runs and sessions over links that break. */
import { type RunState, initialRunState, reduce } from "@throughline/protocol";
import { eventually, manualClock } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { FollowClosed, FollowFailed, type Gap, type RunOutcome } from "../src/index.ts";
import { queued } from "./edge-double.ts";
import { names, stage, take } from "./stage.ts";

const RUN = { session: "ses_1", run: "run_1" };
const upTo = (count: number, run = "run_1"): string[] =>
  Array.from({ length: count }, (_, n) => `${run}.${n + 1}`);

describe("resuming", () => {
  test("[CLI30] cut in the middle, it goes on at the next node behind the last event", async () => {
    const { edges, log, client } = await stage(2);
    const [first, second] = edges;
    log.fill("ses_1", "run_1", 5);
    const handle = client().follow(RUN);
    const events = take(handle);
    await eventually(() => handle.state.seq === 6);
    const cursor = handle.cursor;
    first?.cut();
    await eventually(() => second?.sent("subscribe").length === 1);
    expect(second?.sent("subscribe")[0]?.payload).toEqual({ cursor });
    log.append("ses_1", "run_1", { type: "run.completed", payload: {} });
    expect(names(await events)).toEqual(upTo(7));
  });

  test("[CLI30] cut before the first event, it goes on from the cursor that `subscribed` named", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "other", 3);
    const handle = client().follow({ ...RUN, from: "latest" });
    await eventually(() => handle.cursor !== undefined);
    const { cursor } = handle;
    edge.cut();
    log.fill("ses_1", "run_1", 2, { end: true });
    const events = await take(handle);
    expect(edge.sent("subscribe")[1]?.payload).toEqual({ cursor });
    expect(names(events)).toEqual(upTo(4));
  });

  test("[CLI30] a cursor kept from earlier goes on there", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 4);
    const before = client().follow(RUN);
    await take(before, 3);
    const { cursor } = before;
    before.close();
    log.append("ses_1", "run_1", { type: "run.completed", payload: {} });
    if (cursor === undefined) throw new Error("no cursor");
    const after = client().follow({ ...RUN, cursor });
    expect(names(await take(after))).toEqual(["run_1.4", "run_1.5", "run_1.6"]);
  });

  test("[CLI30] a session is resumed like a run", async () => {
    const { edge, log, client } = await stage();
    const handle = client().follow({ session: "ses_1" });
    const events = take(handle, 12);
    for (let round = 1; round <= 6; round++) {
      log.append(
        "ses_1",
        "a",
        round === 1 ? queued() : { type: "custom", payload: { name: "n", value: round } },
      );
      log.append(
        "ses_1",
        "b",
        round === 1 ? queued() : { type: "custom", payload: { name: "n", value: round } },
      );
      await eventually(() => handle.state.runs["b"]?.seq === round);
      edge.cut();
    }
    expect(names(await events)).toEqual([1, 2, 3, 4, 5, 6].flatMap((n) => [`a.${n}`, `b.${n}`]));
  });
});

describe("what the server does wrong", () => {
  test("[CLI31] an event that comes twice, or again later, is given once", async () => {
    const { edge, log, client } = await stage();
    edge.faults.deliver = (event) => {
      const earlier = log.stored[0]?.event;
      return earlier === undefined ? [event, event] : [event, earlier, event];
    };
    log.fill("ses_1", "run_1", 10, { end: true });
    expect(names(await take(client().follow(RUN)))).toEqual(upTo(12));
  });

  test("[CLI32] [CLI35] an event left out is asked for, from behind the last good one, and nothing later is given before", async () => {
    const { edge, log, client } = await stage();
    let left = 1;
    edge.faults.deliver = (event) => (event.seq === 5 && left-- > 0 ? [] : [event]);
    log.fill("ses_1", "run_1", 10, { end: true });
    expect(names(await take(client().follow(RUN)))).toEqual(upTo(12));
    expect(edge.commands.map(({ type }) => type).slice(0, 3)).toEqual([
      "subscribe",
      "unsubscribe",
      "subscribe",
    ]);
    expect(edge.sent("subscribe")[1]?.payload).toEqual({ cursor: log.stored[3]?.event.cursor });
    expect(edge.complaints).toEqual([]);
  });

  test("[CLI32] in a session, the hole of one run is asked for from behind that run's last event", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "a", 2);
    log.fill("ses_1", "b", 3);
    let left = 2;
    edge.faults.deliver = (event) =>
      event.run_id === "a" && event.seq === 4 && left-- > 0 ? [] : [event];
    const events = take(client().follow({ session: "ses_1" }), 9);
    log.fill("ses_1", "a", 2, { start: false });
    expect(names(await events).toSorted()).toEqual([...upTo(5, "a"), ...upTo(4, "b")].toSorted());
    expect(edge.sent("subscribe")[1]?.payload).toEqual({ cursor: log.of("ses_1", "a")[2]?.cursor });
  });

  test("[CLI32] a hole that never fills fails after eight times", async () => {
    const { edge, log, client } = await stage();
    edge.faults.deliver = (event) => (event.seq === 3 ? [] : [event]);
    log.fill("ses_1", "run_1", 5);
    const handle = client().follow(RUN);
    const closed = await handle.closed;
    expect(closed).toMatchObject({
      reason: "failed",
      error: { name: "FollowFailed", code: "hole" },
    });
    expect(edge.sent("subscribe").length).toBe(9);
    expect(handle.state.seq).toBe(2);
  });

  test("[CLI43] frames that cannot be read are passed over, and a lost event among them is asked for", async () => {
    const { edge, log, client } = await stage();
    let left = 1;
    edge.faults.deliver = (event, connection) => {
      if (event.seq !== 4 || left-- < 1) return [event];
      connection.send(["no", "frame"]);
      connection.send({ type: 7 });
      connection.send({ ...event, cursor: undefined });
      return [];
    };
    log.fill("ses_1", "run_1", 6, { end: true });
    expect(names(await take(client().follow(RUN)))).toEqual(upTo(8));
  });

  test("[CLI43] an event of a type from the future counts, and is not given", async () => {
    const { edge, log, client } = await stage();
    edge.faults.deliver = (event, connection) => {
      if (event.seq !== 3) return [event];
      connection.send({ ...event, type: "run.teleported" });
      return [];
    };
    log.fill("ses_1", "run_1", 3, { end: true });
    const handle = client().follow(RUN);
    expect(names(await take(handle))).toEqual(["run_1.1", "run_1.2", "run_1.4", "run_1.5"]);
    expect(handle.state.seq).toBe(5);
    expect(edge.sent("subscribe").length).toBe(1);
  });
});

describe("what cannot be had any more", () => {
  test("[CLI36] an expired cursor: a gap in the iteration and to onGap, then the snapshot, then the tail", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 5);
    const state: RunState = { ...initialRunState("run_1"), status: "running", seq: 4 };
    const cursor = log.stored[3]?.event.cursor ?? "";
    edge.faults.subscribed = (command) =>
      command.payload.cursor === "2-2-old"
        ? {
            recovered: false,
            mode: "snapshot",
            reason: "cursor_expired",
            after: 4,
            frames: (subscription_id) => [
              { type: "snapshot", subscription_id, run_id: "run_1", state, cursor },
            ],
          }
        : undefined;
    const gaps: Gap[] = [];
    const handle = client().follow({ ...RUN, cursor: "2-2-old", onGap: (gap) => gaps.push(gap) });
    const items = await take(handle, 4);
    expect(names(items)).toEqual(["gap", "snapshot", "run_1.5", "run_1.6"]);
    expect(gaps).toEqual([items[0]]);
    expect(gaps[0]).toMatchObject({ reason: "cursor_expired", run_id: "run_1" });
    expect(handle.state).toMatchObject({ status: "running", seq: 6 });
    expect(handle.cursor).toBe(log.stored[5]?.event.cursor);
  });

  test("[CLI36] another log under the same id: the state begins anew, and seq may go back", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 8);
    const handle = client().follow(RUN);
    const items = take(handle, 14);
    await eventually(() => handle.state.seq === 9);
    // The stream was deleted and made anew; what stands there now has nothing to do with what was.
    edge.faults.subscribed = () => ({
      recovered: false,
      mode: "replay",
      reason: "cursor_invalid",
      after: 0,
    });
    edge.faults.deliver = (event) => (event.seq > 4 ? [] : [event]);
    edge.cut();
    expect(names(await items)).toEqual([...upTo(9), "gap", ...upTo(4)]);
    expect(handle.state.seq).toBe(4);
  });

  test("[CLI36] a start that is gone: told as a gap, and then any first event is taken", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 5, { end: true });
    edge.faults.subscribed = () => ({
      recovered: false,
      mode: "replay",
      reason: "cursor_expired",
      after: 3,
    });
    const handle = client().follow(RUN);
    expect(names(await take(handle))).toEqual(["gap", "run_1.4", "run_1.5", "run_1.6", "run_1.7"]);
    expect(handle.state).toMatchObject({ seq: 7, status: "completed" });
  });

  test("[CLI36] a session's run whose beginning is gone: asked for once more, then told as a gap of that run", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "old", 4);
    log.fill("ses_1", "new", 1);
    edge.faults.deliver = (event) => (event.run_id === "old" && event.seq < 4 ? [] : [event]);
    const gaps: Gap[] = [];
    const handle = client().follow({ session: "ses_1", onGap: (gap) => gaps.push(gap) });
    const items = await take(handle, 5);
    expect(names(items)).toEqual(["gap", "old.4", "old.5", "new.1", "new.2"]);
    expect(gaps).toEqual([
      { type: "gap", session_id: "ses_1", run_id: "old", cursor: log.stored[3]?.event.cursor },
    ]);
    expect(handle.state.runs["old"]?.seq).toBe(5);
    expect(edge.sent("subscribe").length).toBe(2);
    log.fill("ses_1", "old", 1, { start: false });
    expect(names(await take(handle, 1))).toEqual(["old.6"]);
  });

  test("[CLI36] asked for on purpose, starting from the snapshot is no gap", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 5);
    const state: RunState = { ...initialRunState("run_1"), status: "running", seq: 6 };
    const cursor = log.stored[5]?.event.cursor ?? "";
    edge.faults.subscribed = () => ({
      recovered: false,
      mode: "snapshot",
      after: 6,
      frames: (subscription_id) => [
        { type: "snapshot", subscription_id, run_id: "run_1", state, cursor },
      ],
    });
    const handle = client().follow({ ...RUN, from: "snapshot" });
    const items = take(handle, 2);
    await eventually(() => handle.state.seq === 6);
    expect(edge.sent("subscribe")[0]?.payload).toEqual({ from: "snapshot" });
    log.fill("ses_1", "run_1", 1, { start: false });
    expect(names(await items)).toEqual(["snapshot", "run_1.7"]);
  });

  test("[CLI36] [CLI40] the snapshot of a finished run is its end", async () => {
    const { edge, client } = await stage();
    const state: RunState = { ...initialRunState("run_1"), status: "completed", seq: 6, output: 7 };
    edge.faults.subscribed = () => ({
      recovered: true,
      mode: "snapshot",
      after: 6,
      frames: (subscription_id) => [
        { type: "snapshot", subscription_id, run_id: "run_1", state, cursor: "6-6-x" },
      ],
    });
    const handle = client().follow({ ...RUN, from: "snapshot" });
    expect(await handle.done).toEqual({ status: "completed", output: 7, state });
  });
});

describe("several on one client", () => {
  test("[CLI34] what overlaps goes to a connection of its own, which ends with it", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 2);
    const follower = client();
    const whole = follower.follow({ session: "ses_1" });
    const run = follower.follow(RUN);
    const same = follower.follow(RUN);
    const other = follower.follow({ session: "ses_2" });
    await eventually(
      () => run.state.seq === 3 && same.state.seq === 3 && whole.state.runs["run_1"]?.seq === 3,
    );
    expect(edge.connections.size).toBe(3);
    run.close();
    same.close();
    await eventually(() => edge.connections.size === 1);
    log.fill("ses_1", "run_1", 1, { start: false });
    log.fill("ses_2", "run_2", 1);
    await eventually(
      () => whole.state.runs["run_1"]?.seq === 4 && other.state.runs["run_2"]?.seq === 2,
    );
  });

  test("[CLI34] more than 256 are spread over connections", async () => {
    const { edge, log, client } = await stage();
    const follower = client();
    const handles = Array.from({ length: 300 }, (_, n) =>
      follower.follow({ session: "ses_1", run: `r${n}` }),
    );
    for (let n = 0; n < 300; n++) log.append("ses_1", `r${n}`, queued());
    await eventually(() => handles.every(({ state }) => state.seq === 1));
    expect(edge.connections.size).toBe(2);
  });

  test("[CLI45] close unsubscribes; the others and the run go on", async () => {
    const { edge, log, client } = await stage();
    const follower = client();
    const handle = follower.follow(RUN);
    const other = follower.follow({ session: "ses_1", run: "run_2" });
    log.fill("ses_1", "run_1", 1);
    await eventually(() => handle.state.seq === 2);
    handle.close();
    expect(await handle.closed).toEqual({ reason: "closed" });
    await expect(handle.done).rejects.toBeInstanceOf(FollowClosed);
    expect(await take(handle)).toEqual([]);
    await eventually(() => edge.sent("unsubscribe").length === 1);
    log.fill("ses_1", "run_1", 1, { start: false });
    log.fill("ses_1", "run_2", 1);
    await eventually(() => other.state.seq === 2);
    expect(handle.state.seq).toBe(2);
    expect(edge.sent("run.cancel")).toEqual([]);
  });

  test("[CLI45] closed before the server has answered, it is unsubscribed when it has", async () => {
    const { edge, client } = await stage();
    const follower = client();
    await follower.createSession();
    const handle = follower.follow(RUN);
    handle.close();
    await eventually(() => edge.sent("unsubscribe").length === 1);
  });

  test("[CLI45] what a listener throws reaches the process and nobody else", async () => {
    const { log, client } = await stage();
    const handle = client().follow(RUN);
    const thrown: unknown[] = [];
    const caught = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => thrown.push(error));
    try {
      handle.subscribe(() => {
        throw new Error("of the application");
      });
      let calls = 0;
      handle.subscribe(() => (calls += 1));
      log.fill("ses_1", "run_1", 3);
      await eventually(() => thrown.length === 4);
      expect([handle.state.seq, calls]).toEqual([4, 4]);
    } finally {
      process.removeAllListeners("uncaughtException");
      for (const listener of caught) process.on("uncaughtException", listener);
    }
  });

  test("closing the client ends its handles like closing them", async () => {
    const { client } = await stage();
    const follower = client();
    const handle = follower.follow({ session: "ses_1" });
    const items = take(handle);
    await eventually(() => handle.cursor !== undefined);
    follower.close();
    expect(await handle.closed).toEqual({ reason: "closed" });
    expect(await items).toEqual([]);
  });
});

describe("ends", () => {
  test.each([
    ["run.completed", { output: { n: 1 } }, { status: "completed", output: { n: 1 } }],
    [
      "run.failed",
      { code: "agent_error", message: "no", retryable: true },
      { status: "failed", error: { code: "agent_error" } },
    ],
    ["run.cancelled", { reason: "enough" }, { status: "cancelled" }],
  ] as const)(
    "[CLI40] %s ends the iteration, and `done` tells it",
    async (type, payload, outcome) => {
      const { edge, log, client } = await stage();
      log.fill("ses_1", "run_1", 2);
      const handle = client().follow(RUN);
      const events = take(handle);
      log.append("ses_1", "run_1", { type, payload } as Parameters<typeof log.append>[2]);
      expect(names(await events)).toEqual(upTo(4));
      const done: RunOutcome = await handle.done;
      expect(done).toMatchObject({ ...outcome, event: { type, seq: 4 } });
      expect(done.state).toBe(handle.state);
      expect(await handle.closed).toEqual({ reason: "run_ended" });
      // Nothing is left of it: a reconnect asks for nothing.
      const asked = edge.sent("subscribe").length;
      edge.cut();
      await eventually(() => edge.requests.length === 2);
      expect(edge.sent("subscribe").length).toBe(asked);
    },
  );

  test("[CLI42] `run_ended` without a terminal event is asked once more, and then believed", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 2, { end: true });
    edge.faults.command = (command, connection) => {
      if (command.type !== "subscribe") return false;
      connection.answer(command);
      connection.unsubscribe("run_ended");
      return true;
    };
    const handle = client().follow({ ...RUN, cursor: log.stored.at(-1)?.event.cursor ?? "" });
    expect(await take(handle)).toEqual([]);
    expect(await handle.closed).toEqual({ reason: "run_ended" });
    await expect(handle.done).rejects.toMatchObject({ code: "run_ended" });
    expect(edge.sent("subscribe").length).toBe(2);
  });

  test("[CLI42] a server that does not end the subscription of an ended run is told to", async () => {
    const clock = manualClock();
    const { edge, log, client } = await stage();
    edge.faults.endless = true;
    log.fill("ses_1", "run_1", 2, { end: true });
    const handle = client({ clock }).follow(RUN);
    expect(names(await take(handle))).toEqual(upTo(4));
    expect(edge.sent("unsubscribe")).toEqual([]);
    clock.advance(2_000);
    await eventually(() => edge.sent("unsubscribe").length === 1);
  });

  test("[CLI42] a connection lost before that is not used to ask for the ended run again", async () => {
    const { edge, log, client } = await stage();
    edge.faults.endless = true;
    log.fill("ses_1", "run_1", 2, { end: true });
    const follower = client();
    await follower.follow(RUN).done;
    edge.cut();
    await follower.createSession();
    expect(edge.sent("subscribe").length).toBe(1);
  });

  test("[CLI42] a terminal event that is lost on the way is had by asking once more", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 2, { end: true });
    let left = 1;
    edge.faults.deliver = (event) => (event.seq === 4 && left-- > 0 ? [] : [event]);
    const handle = client().follow(RUN);
    expect(names(await take(handle))).toEqual(upTo(4));
    expect((await handle.done).status).toBe("completed");
  });

  test("[CLI41] a refusal for good fails the handle with its code", async () => {
    const { edge, client } = await stage();
    edge.faults.command = ({ id, type }, connection) => {
      if (type === "subscribe")
        connection.send({ type: "error", id, code: "not_found", message: "no such run" });
      return type === "subscribe";
    };
    const handle = client().follow(RUN);
    await expect(take(handle)).rejects.toBeInstanceOf(FollowFailed);
    await expect(handle.done).rejects.toMatchObject({ code: "not_found" });
  });

  test("[CLI41] a refusal that may pass is asked again", async () => {
    const { edge, log, client } = await stage();
    let left = 3;
    edge.faults.command = ({ id, type }, connection) => {
      if (type !== "subscribe" || left-- < 1) return false;
      connection.send({
        type: "command.rejected",
        id,
        code: "unavailable",
        message: "later",
        retry_after_ms: 1,
      });
      return true;
    };
    log.fill("ses_1", "run_1", 1, { end: true });
    expect(names(await take(client().follow(RUN)))).toEqual(upTo(3));
  });

  test("[CLI42] `too_slow` is asked again from the cursor", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 2);
    const handle = client().follow(RUN);
    const events = take(handle);
    await eventually(() => handle.state.seq === 3);
    for (const connection of edge.connections) connection.unsubscribe("too_slow");
    log.append("ses_1", "run_1", { type: "run.completed", payload: {} });
    expect(names(await events)).toEqual(upTo(4));
    expect(edge.sent("subscribe")[1]?.payload).toEqual({ cursor: log.stored[2]?.event.cursor });
  });

  test("[CLI42] `membership` fails", async () => {
    const { edge, client } = await stage();
    const handle = client().follow({ session: "ses_1" });
    await eventually(() => handle.cursor !== undefined);
    for (const connection of edge.connections) connection.unsubscribe("membership");
    expect(await handle.closed).toMatchObject({ reason: "failed", error: { code: "membership" } });
  });
});

describe("state", () => {
  test("[CLI39] is what the reducer makes of the log, through cuts, and tells its listeners", async () => {
    const { edge, log, client } = await stage();
    const handle = client().follow(RUN);
    let told = 0;
    const stop = handle.subscribe(() => (told += 1));
    log.fill("ses_1", "run_1", 3);
    await eventually(() => handle.state.seq === 4);
    edge.cut();
    log.append("ses_1", "run_1", { type: "state.updated", payload: { patch: { a: 1 } } });
    await eventually(() => handle.state.seq === 5);
    const whole = log.of("ses_1", "run_1").reduce<RunState>(reduce, initialRunState("run_1"));
    expect(handle.state).toEqual(whole);
    expect(handle.getSnapshot()).toBe(handle.state);
    expect(told).toBe(5);
    stop();
    log.fill("ses_1", "run_1", 1, { start: false });
    await eventually(() => handle.state.seq === 6);
    expect(told).toBe(5);
  });

  test("[CLI39] of a session it keeps the newest 20 finished runs and all that go on", async () => {
    const { log, client } = await stage();
    const handle = client().follow({ session: "ses_1" });
    log.fill("ses_1", "going", 1);
    for (let n = 1; n <= 30; n++) log.fill("ses_1", `r${n}`, 0, { end: true });
    await eventually(() => handle.state.runs["r30"]?.status === "completed");
    expect(Object.keys(handle.state.runs)).toEqual([
      "going",
      ...Array.from({ length: 20 }, (_, n) => `r${n + 11}`),
    ]);
  });

  test("[CLI39] followed from the middle, it is what can be known from there", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 5);
    const handle = client().follow({ ...RUN, cursor: log.stored[3]?.event.cursor ?? "" });
    await eventually(() => handle.state.seq === 6);
  });

  test("[CLI44] deltas show in the state and in the iteration, and do not move the cursor", async () => {
    const { edge, log, client } = await stage();
    log.append("ses_1", "run_1", queued());
    log.append("ses_1", "run_1", { type: "run.started", payload: { attempt: 1, worker: "w" } });
    const started = log.append("ses_1", "run_1", {
      type: "message.started",
      payload: { message_id: "m", role: "assistant", channel: "text" },
    });
    const handle = client().follow(RUN);
    const items = take(handle, 4);
    await eventually(() => handle.state.seq === 3);
    for (const connection of edge.connections)
      connection.send({
        type: "model.delta",
        session_id: "ses_1",
        run_id: "run_1",
        attempt: 1,
        ts: 1,
        payload: { message_id: "m", offset: 0, text: "hel" },
      });
    expect(names(await items).at(-1)).toBe("model.delta");
    expect(handle.state.messages[0]).toMatchObject({ text: "", live: "hel" });
    expect(handle.cursor).toBe(started.cursor);
  });
});

describe("start", () => {
  test("starts a run, follows it from its first event, and cancels it", async () => {
    const { edge, log, client } = await stage();
    const starter = client();
    const session = await starter.createSession({ title: "t" });
    const run = await starter.start({ session, agent: "test", input: { a: 1 }, id: "start_1" });
    expect([run.session_id, run.run_id]).toEqual([session, "run_start_1"]);
    await eventually(() => run.state.status === "queued");
    const cancelled = run.cancel("enough");
    await eventually(() => edge.sent("run.cancel").length === 1);
    expect(edge.sent("run.cancel")[0]).toMatchObject({
      run_id: run.run_id,
      payload: { reason: "enough" },
    });
    log.append(session, run.run_id, { type: "run.cancelled", payload: { reason: "enough" } });
    await cancelled;
    expect((await run.done).status).toBe("cancelled");
    expect(edge.complaints).toEqual([]);
  });
});
