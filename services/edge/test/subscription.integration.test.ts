import { cursorTag, formatCursor, parseCursor } from "@throughline/protocol";
import { randomOf, seededRandom } from "@throughline/testkit";
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { type Client, completed, freshId, note, range, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
});
afterAll(() => stage.close());

describe("following a run", () => {
  test("[SUB1] [SUB4] [ATT1] on both nodes: stored events, caught_up, live ones to the terminal", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 5; i += 1) await writer.append(note(i));
    const clients = await Promise.all([stage.connected(edge), stage.connected(other)]);
    for (const client of clients) {
      expect(await client.subscribe(ref)).toMatchObject({
        type: "subscribed",
        recovered: true,
        mode: "replay",
        run_id: ref.run,
      });
    }
    await Promise.all(clients.map((client) => client.frame("caught_up")));
    for (let i = 5; i < 60; i += 1) void writer.append(note(i));
    await writer.append(completed);
    for (const client of clients) {
      expect(await client.frame("unsubscribed")).toMatchObject({ reason: "run_ended" });
      expect(client.seqs()).toEqual(range(1, 62));
      expect(client.events.at(-1)?.type).toBe("run.completed");
      const types = client.frames.map((f) => (f.seq === undefined ? f.type : "event"));
      expect(types.filter((type, i) => type !== types[i - 1])).toEqual([
        "welcome",
        "subscribed",
        "event",
        "caught_up",
        "event",
        "unsubscribed",
      ]);
    }
    // Who comes afterwards gets the same, and may subscribe again.
    const [late] = clients;
    if (!late) throw new Error("two clients are wanted");
    expect(await late.subscribe(ref, { from: "latest" })).toMatchObject({ mode: "live" });
    expect(await late.frame("unsubscribed", 2)).toMatchObject({ reason: "run_ended" });
  });

  test("[RES8] [C01] the connection drops before the first event: it comes once on resume", async () => {
    const session = await stage.session(edge);
    const first = await stage.connected(edge);
    const subscribed = await first.subscribe({ session });
    await first.frame("caught_up");
    first.terminate();
    const { ref, writer } = await stage.run(session);
    const second = await stage.connected(other);
    expect(await second.subscribe({ session }, cursorOf(subscribed))).toMatchObject({
      recovered: true,
    });
    await second.frame("caught_up");
    expect(second.events.map((f) => [f.run_id, f.seq])).toEqual([[ref.run, 1]]);
    // And for the run itself, whose cursor was issued before anything was seen.
    const third = await stage.connected(edge);
    const run = await third.subscribe(ref);
    const fourth = await stage.connected(other);
    await writer.append(note(1));
    await fourth.subscribe(ref, cursorOf(run));
    await fourth.until(() => fourth.seqs()[1], "two events");
    expect(fourth.seqs()).toEqual([1, 2]);
  });

  test("[RES8] [C02] dropping and resuming twice with nothing in between replays nothing", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 4; i += 1) void writer.append(note(i));
    await writer.flush();
    for (const scope of [ref, { session }]) {
      const first = await stage.connected(edge);
      await first.subscribe(scope);
      await first.frame("caught_up");
      let cursor = first.cursor;
      for (const node of [other, edge, other]) {
        const again = await stage.connected(node);
        expect(await again.subscribe(scope, { cursor })).toMatchObject({ recovered: true, cursor });
        expect(await again.frame("caught_up")).toMatchObject({ cursor });
        expect(again.seqs()).toEqual([]);
        cursor = again.cursor;
      }
    }
  });

  test("[RES1] [RES2] [C05] resuming 10,001 events at the last but one: one event, found by position", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 10_000; i += 1) {
      void writer.append(note(i));
      if (i % 500 === 0) await writer.flush();
    }
    await writer.flush();
    const fresh = await stage.edge();
    const last = await stage.broker.events.last({ kind: "run", ...ref }, "leader");
    if (!last) throw new Error("the run is stored");
    const tag = cursorTag(ref.run, last.epoch);
    const cursor = formatCursor({ seq: 10_000, streamSeq: last.streamSeq, tag });
    const client = await stage.connected(fresh);
    expect(await client.subscribe(ref, { cursor })).toMatchObject({ recovered: true });
    await client.frame("caught_up");
    expect(client.seqs()).toEqual([10_001]);
    expect(fresh.measured.fanout.logReads).toBeLessThanOrEqual(1);
    // From the start all of them, in pages, each once.
    const whole = await stage.connected(fresh);
    await whole.subscribe(ref);
    await whole.frame("caught_up");
    expect(whole.seqs()).toEqual(range(1, 10_001));
  });

  test("[RES4] [RES5] another run's cursor is invalid, said openly, and followed by what is stored", async () => {
    const session = await stage.session(edge);
    const [a, b] = [await stage.run(session), await stage.run(session)];
    const client = await stage.connected(edge);
    await client.subscribe(a.ref);
    await client.frame("caught_up");
    const stranger = await stage.connected(other);
    expect(await stranger.subscribe(b.ref, { cursor: client.cursor })).toMatchObject({
      recovered: false,
      reason: "cursor_invalid",
      mode: "replay",
    });
    await stranger.frame("caught_up");
    expect(stranger.seqs(b.ref.run)).toEqual([1]);
    const beyond = formatCursor({ ...must(parseCursor(client.cursor)), seq: 5, streamSeq: 1e9 });
    const third = await stage.connected(other);
    expect(await third.subscribe(a.ref, { cursor: beyond })).toMatchObject({
      reason: "cursor_invalid",
    });
    expect(
      await stage.connected(edge).then((c) => c.subscribe({ session }, { cursor: beyond })),
    ).toMatchObject({
      recovered: false,
    });
  });

  test("[SUB5] [RES5] [INV8] an expired cursor gets the snapshot and the tail, never silence", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 9; i += 1) await writer.append(note(i));
    const first = await stage.connected(edge);
    await first.subscribe(ref);
    await first.frame("caught_up");
    const messages = await stage.broker.events.read({ kind: "run", ...ref }, 0);
    const sixth = must(messages.messages[5]);
    await stage.broker.snapshots.write(ref, {
      state: { seq: 7 },
      seq: 7,
      streamSeq: must(messages.messages[6]).streamSeq,
      attempt: 1,
      writer: writer.writer,
      epoch: sixth.epoch,
      cmd: 0,
    });
    const cursor = must(first.events[2]?.cursor);
    await stage.broker.jsm.streams.purge(`TL_EV_${stage.broker.shardOf(session)}`, {
      seq: sixth.streamSeq,
    });
    const node = await stage.edge();
    const second = await stage.connected(node);
    expect(await second.subscribe(ref, { cursor })).toMatchObject({
      recovered: false,
      reason: "cursor_expired",
      mode: "snapshot",
    });
    await second.frame("caught_up");
    const types = second.frames.slice(1).map((f) => f.seq ?? f.type);
    expect(types).toEqual(["subscribed", "snapshot", 8, 9, 10, "caught_up"]);
    expect(second.frames.find((f) => f.type === "snapshot")?.state).toEqual({ seq: 7 });
    // Asked for, it is no loss.
    const third = await stage.connected(node);
    expect(await third.subscribe(ref, { from: "snapshot" })).toMatchObject({
      recovered: true,
      mode: "snapshot",
    });
  });

  test("[SUB6] [SUB7] of a run that only a snapshot is left of, the snapshot; a large one by its URL", async () => {
    const session = await stage.session(edge);
    const ref = { tenant: "acme", session, run: `run_${randomBytes(4).toString("hex")}` };
    const state = { text: "x".repeat(600_000) };
    const snapshot = { seq: 3, streamSeq: 7, attempt: 1, writer: "w", epoch: "gone", cmd: 0 };
    await stage.broker.snapshots.write(ref, { state, ...snapshot });
    const client = await stage.connected(edge);
    expect(await client.subscribe(ref)).toMatchObject({ recovered: false, mode: "snapshot" });
    expect(await client.frame("unsubscribed")).toMatchObject({ reason: "run_ended" });
    const frame = await client.frame("snapshot");
    expect(frame.state).toBeUndefined();
    const response = await fetch(`http://127.0.0.1:${edge.port}${frame.state_url}`, {
      headers: { authorization: "Bearer dev.acme.ann" },
    });
    expect(await response.json()).toEqual({ state, cursor: frame.cursor });
    // A page of its events says the same.
    const page = await fetch(`http://127.0.0.1:${edge.port}${frame.state_url}/events`, {
      headers: { authorization: "Bearer dev.acme.ann" },
    });
    expect(await page.json()).toEqual({
      events: [],
      cursor: frame.cursor,
      more: false,
      ended: true,
      recovered: false,
      reason: "cursor_expired",
      snapshot: { state_url: frame.state_url, cursor: frame.cursor },
    });
  });

  test("[RES4] [RES5] [C06] the stream is deleted and made anew: old cursors are told, strangers' events never shown", async () => {
    const own = await Stage.open();
    try {
      const node = await own.edge();
      const session = await own.session(node);
      const old = await own.run(session);
      const sibling = await own.run(session);
      await old.writer.append(note(1));
      const before = await own.connected(node);
      await before.subscribe({ session });
      await before.frame("caught_up");
      const runClient = await own.connected(node);
      await runClient.subscribe(old.ref);
      await runClient.frame("caught_up");
      const stream = `TL_EV_${own.broker.shardOf(session)}`;
      const { config } = await own.broker.jsm.streams.info(stream);
      await own.broker.jsm.streams.delete(stream);
      await own.broker.jsm.streams.add(config);
      // Another run takes the numbers that the old one had; the old run's id comes again too.
      await own.run(session);
      await own.run(session);
      await own.run(session);
      const fresh = await own.edge();
      const gone = await own.connected(fresh);
      expect(await gone.subscribe(sibling.ref, { cursor: runClient.cursor })).toMatchObject({
        code: "not_found",
      });
      const lost = await own.connected(fresh);
      expect(await lost.subscribe({ session }, { cursor: before.cursor })).toMatchObject({
        recovered: false,
      });
      await lost.frame("caught_up");
      // All that the new stream has, as states.
      const states = lost.frames.filter((f) => f.type === "snapshot");
      expect(states.map((f) => f.state)).toMatchObject(Array(3).fill({ status: "queued", seq: 1 }));
      expect(lost.seqs()).toEqual([]);
    } finally {
      await own.close();
    }
  });

  test("[SUB3] [C30] [INV11] unknown, foreign and private things are all not found, over every door", async () => {
    const session = await stage.session(edge, "dev.acme.ann");
    const { ref } = await stage.run(session);
    const answers = new Set<string>();
    for (const token of ["dev.other.ann", "dev.acme.eve"]) {
      const client = await stage.connected(edge, { token });
      for (const scope of [ref, { session }]) answers.add(told(await client.subscribe(scope)));
      const steer = { session_id: session, run_id: ref.run };
      answers.add(told(await client.ask({ type: "run.cancel", ...steer, payload: {} })));
      answers.add(
        told(
          await client.ask({
            type: "run.start",
            session_id: session,
            payload: { agent: "echo", input: 1 },
          }),
        ),
      );
      for (const path of ["events", `runs/${ref.run}/events`, `runs/${ref.run}`]) {
        const response = await fetch(
          `http://127.0.0.1:${edge.port}/v1/sessions/${session}/${path}`,
          {
            headers: { authorization: `Bearer ${token}` },
          },
        );
        expect(response.status).toBe(404);
      }
    }
    expect([...answers]).toEqual(["not_found: no such session, or none that this user may see"]);
    const owner = await stage.connected(edge);
    expect(await owner.subscribe({ session: "ses_none" })).toMatchObject({ code: "not_found" });
    expect(await owner.subscribe({ session, run: "run_none" })).toMatchObject({
      type: "error",
      code: "not_found",
    });
  });

  test("[SUB2] a session and its run at once: already_subscribed; left, it can be taken", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const client = await stage.connected(edge);
    const subscribed = await client.subscribe({ session });
    expect(await client.subscribe(ref)).toMatchObject({
      type: "error",
      code: "already_subscribed",
    });
    const left = await client.ask({
      type: "unsubscribe",
      payload: { subscription_id: subscribed.subscription_id },
    });
    expect(left).toMatchObject({ type: "unsubscribed", reason: "asked" });
    expect(await client.subscribe(ref)).toMatchObject({ type: "subscribed" });
  });

  test("[GATE1] [GATE3] deltas come between the events they belong to, also for who comes later", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const first = await stage.connected(edge);
    await first.subscribe(ref);
    await first.frame("caught_up");
    await writer.append({
      type: "message.started",
      payload: { message_id: "m1", role: "assistant", channel: "text" },
    });
    const text = writer.text("m1");
    await text.write("Hello ");
    await first.frame("model.delta");
    const second = await stage.connected(other);
    const third = await stage.connected(edge);
    await third.subscribe(ref);
    await third.frame("model.delta");
    await second.subscribe({ session });
    await second.frame("caught_up");
    await text.write("world");
    await text.end();
    await first.frame("model.chunk");
    const shown = first.frames.filter((f) => f.type.startsWith("m"));
    expect(shown[0]?.type).toBe("message.started");
    expect(shown.at(-1)?.type).toBe("model.chunk");
    for (const frame of first.frames.filter((f) => f.type === "model.delta")) {
      expect(frame.seq).toBeUndefined();
      expect(frame.cursor).toBeUndefined();
    }
    await writer.append(completed);
    for (const client of [first, third]) expect(await client.frame("unsubscribed")).toBeDefined();
    await second.frame("run.completed");
  });
});

/** A client that is cut off at random and goes on at another node from its last cursor. */
async function wander(
  scope: { session: string; run?: string },
  random: ReturnType<typeof randomOf>,
  isOver: (all: Client["events"]) => boolean,
): Promise<{ events: Client["events"]; moves: number }> {
  const events: Client["events"][number][] = [];
  let cursor: string | undefined;
  for (let moves = 0; ; moves += 1) {
    const client = stage.client(random.pick([edge, other]), {});
    await client.frame("welcome");
    const subscribed = await client.subscribe(scope, cursor === undefined ? {} : { cursor });
    expect(subscribed).toMatchObject({ type: "subscribed", recovered: true });
    cursor ??= subscribed.cursor;
    const stay = random.int(40);
    await client.until(
      () =>
        client.events.length >= stay ||
        isOver([...events, ...client.events]) ||
        client.frames.some((f) => f.type === "unsubscribed"),
      "some events",
    );
    client.terminate();
    const had = [...client.events];
    events.push(...had);
    cursor = had.at(-1)?.cursor ?? cursor;
    if (isOver(events)) return { events, moves };
  }
}

describe("moving between nodes", () => {
  test("[ATT1] [INV2] [INV10] a hundred random cuts, of a run and of a session: nothing lost, nothing doubled", async () => {
    const random = seededRandom();
    let moves = 0;
    for (let round = 0; moves < 100; round += 1) {
      const session = await stage.session(edge);
      const runs = [await stage.run(session), await stage.run(session)];
      const main = must(runs[0]);
      const walks = [
        wander(
          main.ref,
          randomOf(random.int(2 ** 31)),
          (all) => all.at(-1)?.type === "run.completed",
        ),
        wander(
          { session },
          randomOf(random.int(2 ** 31)),
          (all) => all.filter((f) => f.type === "run.completed").length === 2,
        ),
      ];
      for (let i = 0; i < 300; i += 1) {
        void random.pick(runs).writer.append(note(i));
        if (random.chance(0.2)) await random.pick(runs).writer.flush();
      }
      for (const { writer } of runs) await writer.append(completed);
      const [run, whole] = await Promise.all(walks);
      const last = main.writer.seq;
      expect(must(run).events.map((f) => f.seq)).toEqual(range(1, last));
      for (const { ref, writer } of runs) {
        const seqs = must(whole)
          .events.filter((f) => f.run_id === ref.run)
          .map((f) => f.seq);
        expect(seqs).toEqual(range(1, writer.seq));
      }
      moves += must(run).moves + must(whole).moves;
    }
  }, 60_000);
});

test("[HUB2] no hub met a fault, and nothing was logged as an error", () => {
  expect(edge.measured.fanout.faults + other.measured.fanout.faults).toBe(0);
  expect(stage.logged.filter((entry) => "err" in entry)).toEqual([]);
  expect(freshId()).not.toBe(freshId());
});

const cursorOf = (frame: { cursor?: string }): { cursor: string } => ({
  cursor: must(frame.cursor),
});
const told = (frame: { code?: string; message?: string }): string =>
  `${frame.code}: ${frame.message}`;

function must<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("it is there");
  return value;
}
