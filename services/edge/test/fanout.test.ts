import { cursorTag, formatCursor } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import { FrameFault } from "../src/fanout/frame.ts";
import { FANOUT_LIMITS } from "../src/fanout/limits.ts";
import { Runs } from "../src/fanout/runs.ts";
import { HubBehind } from "../src/fanout/start.ts";
import { FakeLog } from "./fake-log.ts";
import { Fixture, runFilter, SESSION } from "./fanout-fixture.ts";

const RUN = runFilter("r");
const TAG = cursorTag("r", "e1");
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);

async function begun(limits = {}, events = 3): Promise<Fixture> {
  const f = new Fixture(limits);
  f.log.append("r", 1);
  for (let i = 1; i < events; i += 1) f.log.append("r", 1);
  return f;
}

describe("following a run", () => {
  test("[SUB1] [ATT2] stored events, caught_up, then live ones, each once", async () => {
    const f = await begun();
    const client = await f.follow(RUN);
    await f.settle();
    // The hub's tail has not said yet that it is level with the log.
    expect(client.control).toEqual([]);
    f.log.pump();
    await f.settle();
    expect(client.socket.frames.map((x) => x.seq ?? x.type)).toEqual([1, 2, 3, "caught_up"]);
    f.log.append("r", 2);
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 5));
    expect(client.start).toMatchObject({ recovered: true, mode: "replay", cursor: `0-0-${TAG}` });
  });

  test("[ATT4] a client that is level waits for a hub that is still behind the log, and is fed as that moves", async () => {
    const f = await begun({}, 4);
    f.log.replicaLag = 3;
    const client = await f.follow(RUN);
    await f.settle();
    for (const seq of [1, 2, 3]) {
      expect(client.seqs).toEqual(range(1, seq));
      expect(client.control).toEqual([]);
      f.log.pump(1);
      await f.settle();
    }
    expect(client.seqs).toEqual([1, 2, 3, 4]);
    expect(client.control).toEqual(["caught_up"]);
  });

  test("[SUB5] latest begins behind the newest event", async () => {
    const f = await begun();
    const client = await f.follow(RUN, { from: "latest" });
    f.log.append("r", 1);
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual([4]);
    expect(client.start).toMatchObject({ mode: "live", cursor: `3-3-${TAG}` });
  });

  test("[SUB5] [RES2] a snapshot is followed by the events behind it, from inside a message too", async () => {
    const f = await begun({}, 1);
    f.log.append("r", 4);
    f.snapshots.set("r", { state: { n: 3 }, seq: 3, streamSeq: 2, epoch: "e1" });
    const client = await f.follow(RUN, { from: "snapshot" });
    f.log.pump();
    await f.settle();
    expect(client.start).toMatchObject({
      mode: "snapshot",
      recovered: true,
      snapshots: [{ run: "r", json: '{"n":3}' }],
    });
    expect(client.control).toEqual(["snapshot", "caught_up"]);
    expect(client.seqs).toEqual([4, 5]);
  });

  test("[SUB5] without a snapshot, and with one of another incarnation, it is the stored events", async () => {
    const f = await begun();
    expect((await f.follow(RUN, { from: "snapshot" })).start.mode).toBe("replay");
    f.snapshots.set("r", { state: {}, seq: 3, streamSeq: 3, epoch: "before" });
    expect((await f.follow(RUN, { from: "snapshot" })).start.mode).toBe("replay");
  });

  test("[SUB5] [RES5] a run whose beginning is not stored any more: said, then the snapshot or what is stored", async () => {
    const f = await begun({}, 6);
    f.log.expire(2);
    const plain = await f.follow(RUN);
    expect(plain.start).toMatchObject({
      recovered: false,
      reason: "cursor_expired",
      mode: "replay",
    });
    f.snapshots.set("r", { state: {}, seq: 4, streamSeq: 4, epoch: "e1" });
    const snapshot = await f.follow(RUN);
    expect(snapshot.start).toMatchObject({ recovered: false, mode: "snapshot" });
    f.log.pump();
    await f.settle();
    expect(plain.seqs).toEqual([3, 4, 5, 6]);
    expect(snapshot.seqs).toEqual([5, 6]);
    // What it was told to start from is a cursor like any other.
    const again = await f.follow(RUN, { cursor: plain.start.cursor });
    await f.settle();
    expect(again.start.recovered).toBe(true);
    expect(again.seqs).toEqual([3, 4, 5, 6]);
  });

  test("[RES3] [RES5] an expired cursor gets what is stored, openly", async () => {
    const cursor = formatCursor({ seq: 2, streamSeq: 2, tag: TAG });
    const whole = await begun({}, 8);
    whole.log.expire(2);
    expect((await whole.follow(RUN, { cursor })).start).toMatchObject({
      recovered: true,
      mode: "replay",
    });
    const f = await begun({}, 8);
    f.log.expire(4);
    const lost = await f.follow(RUN, { cursor });
    f.log.pump();
    await f.settle();
    expect(lost.start).toMatchObject({ recovered: false, reason: "cursor_expired" });
    expect(lost.seqs).toEqual([5, 6, 7, 8]);
  });

  test("[RES4] [C06] the stream was made anew: an old cursor is invalid, and the new events come from the start", async () => {
    const f = new Fixture();
    f.log.epoch = "e2";
    f.log.append("r", 3);
    const cursor = formatCursor({ seq: 2, streamSeq: 1, tag: TAG });
    const client = await f.follow(RUN, { cursor });
    f.log.pump();
    await f.settle();
    expect(client.start).toMatchObject({ recovered: false, reason: "cursor_invalid" });
    expect(client.seqs).toEqual([1, 2, 3]);
  });

  test("[RES7] a cursor from ahead of a lagging replica waits for the hub", async () => {
    const f = await begun({}, 5);
    f.log.replicaLag = 3;
    const cursor = formatCursor({ seq: 4, streamSeq: 4, tag: TAG });
    const client = await f.followLate(RUN, { cursor });
    f.log.pump();
    await f.settle();
    expect(client.start.recovered).toBe(true);
    expect(client.seqs).toEqual([5]);
  });

  test("[RES7] one from ahead of the leader is invalid; a hub that does not come there says so", async () => {
    const f = await begun({}, 5);
    const beyond = formatCursor({ seq: 9, streamSeq: 9, tag: TAG });
    expect((await f.follow(RUN, { cursor: beyond })).start.reason).toBe("cursor_invalid");
    const g = await begun({}, 5);
    g.log.replicaLag = 3;
    const ahead = formatCursor({ seq: 4, streamSeq: 4, tag: TAG });
    const following = expect(g.follow(RUN, { cursor: ahead })).rejects.toThrow(HubBehind);
    await g.settle();
    g.advance(10_000);
    await following;
  });

  test("[SUB4] after the terminal event: caught_up, then the end; the tail is closed", async () => {
    const f = await begun();
    const live = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    f.log.append("r", 1, { end: true });
    f.log.pump();
    await f.settle();
    expect(live.end).toBe("run_ended");
    expect(live.seqs).toEqual(range(1, 4));
    expect(f.log.tails).toBe(0);
    const late = await f.follow(RUN);
    await f.settle();
    expect(late.socket.frames.map((x) => x.seq ?? x.type)).toEqual([1, 2, 3, 4, "caught_up"]);
    expect(late.end).toBe("run_ended");
  });
});

describe("the hub", () => {
  test("[RES1] [C05] resuming near the end of a long run reads near its end only", async () => {
    const f = await begun({ ring: { bytes: 2_000, messages: 4 } }, 10_001);
    const cursor = formatCursor({ seq: 10_000, streamSeq: 10_000, tag: TAG });
    const client = await f.follow(RUN, { cursor });
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual([10_001]);
    expect(f.log.reads).toBeLessThanOrEqual(1);
    expect(f.node.metrics.fed).toBe(1);
  });

  test("[HUB7] a reconnect storm on a cold hub costs a few reads", async () => {
    const f = await begun({}, 400);
    const clients = await Promise.all(
      range(1, 300).map((i) => {
        const at = 100 + ((i * 7) % 290);
        return f.follow(RUN, { cursor: formatCursor({ seq: at, streamSeq: at, tag: TAG }) });
      }),
    );
    f.log.pump();
    await f.settle();
    for (const client of clients) {
      const from = Number(client.start.cursor.split("-")[0]);
      expect(client.seqs).toEqual(range(from + 1, 400));
    }
    expect(f.log.reads).toBeLessThanOrEqual(6);
  });

  test("[HUB2] an event that does not follow ends the hub: its clients are told, the next one starts anew", async () => {
    const f = await begun();
    const client = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    f.log.fault(new Error("the log contradicts itself"));
    expect(client.end).toBe("lost");
    expect(f.reported.map((error) => error.message)).toEqual(["the log contradicts itself"]);
    expect(f.hubs.size).toBe(0);
    const again = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    expect(again.seqs).toEqual([1, 2, 3]);
  });

  test("[HUB2] what does not follow a run's last event is a fault, of each run by itself", () => {
    const log = new FakeLog();
    const runs = new Runs(FANOUT_LIMITS.gate);
    const [first, second, third] = [log.append("r", 2), log.append("r", 2), log.append("r", 2)];
    log.epoch = "e2";
    const reborn = log.append("r", 1);
    runs.came(first);
    expect(() => runs.came(third)).toThrow(FrameFault);
    runs.came(log.append("other", 1));
    runs.came(second);
    expect(() => runs.came(second)).toThrow(FrameFault);
    runs.came(third);
    expect(() => runs.came(reborn)).toThrow(FrameFault);
  });

  test("[HUB4] it lingers 30 s after its last client, then closes its tail; a client keeps it", async () => {
    const f = await begun();
    const client = await f.follow(RUN);
    f.advance(100_000);
    f.hubs.sweep(f.time);
    expect(f.hubs.size).toBe(1);
    client.leave();
    f.advance(29_000);
    f.hubs.sweep(f.time);
    expect(f.log.tails).toBe(1);
    f.advance(1_001);
    f.hubs.sweep(f.time);
    expect(f.hubs.size).toBe(0);
    expect(f.log.tails).toBe(0);
    expect(f.node.budget.total).toBe(0);
  });

  test("[HUB3] a turn publishes its share, the next the rest; a flood beyond that is read at each client's pace", async () => {
    const f = await begun({ turnBytes: 10_000, unpublishedBytes: 40_000 });
    const client = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    for (let i = 0; i < 20; i += 1) f.log.append("r", 1, { pad: 1_000 });
    f.log.pump();
    f.net.turn();
    const first = client.seqs.length;
    expect(first).toBeGreaterThan(3);
    expect(first).toBeLessThan(14);
    await f.settle();
    expect(client.seqs).toEqual(range(1, 23));
    expect(client.control).toEqual(["caught_up"]);
    expect(f.node.metrics.deferred).toBeGreaterThan(0);
    for (let i = 0; i < 60; i += 1) f.log.append("r", 1, { pad: 1_000 });
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 83));
    expect(client.control).toEqual(["caught_up", "lagging", "recovered"]);
  });

  test("[ATT5] a hole in the log behind a client's position ends its connection", async () => {
    const f = await begun({ lowWater: 200, pageBytes: 200, ring: { bytes: 500, messages: 2 } }, 40);
    const client = await f.follow(RUN, { kernelBytes: 600 });
    await f.settle();
    expect(client.attachment?.place.at).toBe("paced");
    f.log.expire(30);
    f.advance(20_000);
    f.hubs.sweep(f.time);
    client.socket.drain(1e6);
    await f.settle();
    expect(client.end).toBe("hole");
    // Coming back it is told.
    const again = await f.follow(RUN, { cursor: client.cursor });
    expect(again.start).toMatchObject({ recovered: false, reason: "cursor_expired" });
  });

  test("[RES8] NATS away while a client catches up: it waits and goes on", async () => {
    const f = await begun({ ring: { bytes: 500, messages: 2 } }, 10);
    const client = await f.follow(RUN);
    client.leave();
    f.advance(40_000);
    f.hubs.sweep(f.time);
    const next = await f.follow(RUN, { from: "latest" });
    next.leave();
    f.log.failure = Object.assign(new Error("away"), { name: "BrokerUnavailable" });
    await expect(f.follow(RUN)).rejects.toThrow("away");
    f.log.failure = undefined;
    const back = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    expect(back.seqs).toEqual(range(1, 10));
  });
});

describe("deltas", () => {
  test("[GATE1] one that overtook its event comes behind it", async () => {
    const f = await begun();
    const client = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    f.log.append("r", 1);
    f.log.delta("r", 4, "early");
    await f.settle();
    expect(client.texts).toEqual([]);
    f.log.pump();
    await f.settle();
    expect(client.socket.frames.slice(-2).map((x) => x.seq ?? x.payload?.text)).toEqual([
      4,
      "early",
    ]);
  });

  test("[GATE3] a client that comes later sees those since the checkpoint; who wants none gets none", async () => {
    const f = await begun();
    const first = await f.follow(RUN);
    const plain = await f.follow(RUN, { deltas: false });
    f.log.pump();
    await f.settle();
    f.log.delta("r", 3, "a");
    f.log.delta("r", 3, "b");
    await f.settle();
    const second = await f.follow(RUN);
    await f.settle();
    f.log.delta("r", 3, "c");
    await f.settle();
    expect(second.texts).toEqual(["a", "b", "c"]);
    expect(first.texts).toEqual(["a", "b", "c"]);
    expect(plain.texts).toEqual([]);
    f.log.append("r", 1, { settled: true });
    f.log.pump();
    await f.settle();
    const third = await f.follow(RUN);
    await f.settle();
    expect(third.texts).toEqual([]);
  });

  test("[GATE4] of a run that a session's hub has not seen yet, the log is asked where it stands", async () => {
    const f = await begun();
    f.log.append("other", 2);
    const client = await f.follow(SESSION);
    f.log.pump();
    await f.settle();
    f.log.delta("r", 3, "shown");
    f.log.delta("r", 9, "too early");
    f.log.delta("none", 1, "no such run");
    await f.settle();
    expect(client.texts).toEqual(["shown"]);
  });

  test("[HUB6] what is kept for nobody, held or not yet understood counts in the budget, and can be let go", async () => {
    const f = new Fixture({}, 20_000);
    f.log.append("r", 3);
    const session = await f.follow(SESSION, { from: "latest", deltas: false });
    f.log.pump();
    await f.settle();
    session.leave();
    const text = "x".repeat(500);
    for (let i = 0; i < 60; i += 1) f.log.delta("r", 3, text);
    await f.settle();
    const kept = f.node.budget.total;
    expect(kept).toBeGreaterThan(10_000);
    for (let i = 0; i < 60; i += 1) f.log.delta("r", 9, text);
    await f.settle();
    expect(f.node.budget.total).toBeGreaterThan(kept + 10_000);
    f.log.failure = new Error("away");
    f.log.append("unseen", 1);
    for (let i = 0; i < 60; i += 1) f.log.delta("unseen", 1, text);
    f.net.turn();
    expect(f.node.budget.total).toBeGreaterThan(kept + 40_000);
    // Whoever needs room next has it.
    f.log.failure = undefined;
    for (let i = 0; i < 10; i += 1) f.log.append("other", 1, { pad: 1_500 });
    const other = await f.follow(runFilter("other"));
    f.log.pump();
    await f.settle();
    expect(other.seqs).toEqual(range(1, 10));
    expect(f.node.budget.total).toBeLessThan(25_000);
  });

  test("[GATE2] after the run's end none is shown any more", async () => {
    const f = await begun();
    const client = await f.follow(SESSION);
    f.log.pump();
    await f.settle();
    f.log.append("r", 1, { end: true });
    f.log.pump();
    const asked = f.log.lasts;
    f.log.delta("r", 3, "zombie");
    f.log.delta("r", 4, "zombie");
    await f.settle();
    expect(client.texts).toEqual([]);
    expect(f.log.lasts).toBe(asked);
  });
});

describe("a slow client", () => {
  const SLOW = { lookBytes: 1_000, lowWater: 2_000, softLimit: 4_000, hardLimit: 8_000 };

  async function stalled(): Promise<{
    f: Fixture;
    slow: Awaited<ReturnType<Fixture["follow"]>>;
    fast: Awaited<ReturnType<Fixture["follow"]>>;
  }> {
    const f = await begun(SLOW);
    const slow = await f.follow(RUN, { kernelBytes: 1_000 });
    const fast = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    return { f, slow, fast };
  }

  test("[LAG1] over the soft limit it is told, and has no more deltas; drained, it gets those it needs", async () => {
    const { f, slow, fast } = await stalled();
    for (let i = 0; i < 6; i += 1) f.log.append("r", 1, { pad: 1_000 });
    f.log.pump();
    await f.settle();
    expect(slow.attachment?.place).toEqual({ at: "live", deltas: "withheld" });
    f.log.delta("r", 9, "withheld");
    await f.settle();
    slow.socket.drain(1e6);
    await f.settle();
    expect(slow.seqs).toEqual(range(1, 9));
    expect(slow.control).toEqual(["caught_up", "lagging", "recovered"]);
    expect(slow.texts).toEqual(["withheld"]);
    expect(fast.texts).toEqual(["withheld"]);
    expect(fast.control).toEqual(["caught_up"]);
  });

  test("[LAG1] deltas alone make it fall behind, too", async () => {
    const { f, slow, fast } = await stalled();
    for (let i = 0; i < 80; i += 1) {
      f.log.delta("r", 3, "x".repeat(100));
      await f.settle();
    }
    expect(slow.attachment?.place).toEqual({ at: "live", deltas: "withheld" });
    expect(slow.socket.buffered()).toBeLessThan(6_000);
    expect(fast.texts).toHaveLength(80);
    expect(f.node.metrics.lagging).toBe(1);
    slow.leave();
    expect(f.node.metrics.lagging).toBe(0);
  });

  test("[LAG2] [LAG3] over the hard limit it is fed as it drains: nothing lost, nothing twice, bounded memory", async () => {
    const { f, slow, fast } = await stalled();
    for (let i = 0; i < 200; i += 1) {
      f.log.append("r", 1, { pad: 1_000 });
      f.log.pump();
      await f.settle();
      expect(slow.socket.buffered()).toBeLessThan(12_000);
    }
    expect(slow.attachment?.place.at).toBe("paced");
    expect(f.node.metrics.lagging).toBe(1);
    expect(fast.seqs).toEqual(range(1, 203));
    while (slow.attachment?.place.at !== "live" || slow.socket.buffered() > 0) {
      slow.socket.drain(3_000);
      await f.settle();
    }
    expect(slow.seqs).toEqual(range(1, 203));
    expect(slow.control).toEqual(["caught_up", "lagging", "recovered"]);
    expect(f.node.metrics).toMatchObject({ lagging: 0, demoted: 1, recovered: 1 });
  });

  test("[ATT5] a dropped send ends the connection at once", async () => {
    const { f, slow } = await stalled();
    const send = slow.socket.send.bind(slow.socket);
    slow.socket.send = (frame) => (typeof frame === "string" ? send(frame) : "dropped");
    for (let i = 0; i < 20; i += 1) {
      f.log.append("r", 1, { pad: 1_000 });
      f.log.pump();
      await f.settle();
    }
    slow.socket.drain(1e6);
    await f.settle();
    expect(slow.end).toBe("dropped");
    expect(slow.attachment?.place.at).toBe("detached");
  });
});

describe("a client with a window", () => {
  test("[CRED1] [CRED2] has at most so many events unacknowledged, catching up and later, whatever a message holds", async () => {
    const f = await begun({}, 1);
    f.log.append("r", 7);
    const client = await f.follow(RUN, { window: 3 });
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual([1, 2, 3]);
    expect(client.attachment?.place).toMatchObject({ at: "paced", waits: "credit" });
    expect(client.acknowledge(client.events[1]?.cursor)).toBe("freed");
    await f.settle();
    expect(client.seqs).toEqual([1, 2, 3, 4, 5]);
    for (const seqs of [range(1, 8), range(1, 8)]) {
      client.acknowledge();
      await f.settle();
      expect(client.seqs).toEqual(seqs);
    }
    expect(client.control).toEqual(["caught_up"]);
    for (let i = 0; i < 5; i += 1) f.log.append("r", 1);
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 11));
    client.acknowledge();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 13));
    // It never goes live, and is told nothing of its own pace.
    expect(client.attachment?.place.at).toBe("paced");
    expect(client.control).toEqual(["caught_up"]);
    expect(f.node.metrics.creditWaits).toBe(3);
  });

  test("[CRED2] caught_up does not wait for credit, and neither does the run's end", async () => {
    const f = await begun({}, 3);
    const client = await f.follow(RUN, { window: 3 });
    f.log.pump();
    await f.settle();
    expect(client.control).toEqual(["caught_up"]);
    client.acknowledge();
    f.log.append("r", 3, { end: true });
    f.log.pump();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 6));
    expect(client.end).toBe("run_ended");
  });

  test("[CRED3] acknowledged again, or what it had before: nothing new; ahead or of another run: said", async () => {
    const f = await begun({}, 6);
    const before = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    const [first, second, third] = before.events;
    const client = await f.follow(RUN, { window: 2, cursor: second?.cursor ?? "" });
    await f.settle();
    expect(client.seqs).toEqual([3, 4]);
    expect(client.acknowledge(first?.cursor)).toBe("behind");
    expect(client.acknowledge(second?.cursor)).toBe("behind");
    expect(client.acknowledge(formatCursor({ seq: 3, streamSeq: 3, tag: "other" }))).toBe(
      "foreign",
    );
    expect(client.acknowledge(before.events[4]?.cursor)).toBe("ahead");
    await f.settle();
    expect(client.seqs).toEqual([3, 4]);
    expect(client.acknowledge(third?.cursor)).toBe("freed");
    expect(client.acknowledge(third?.cursor)).toBe("behind");
    await f.settle();
    expect(client.seqs).toEqual([3, 4, 5]);
    // Without a window there is nothing to free.
    expect(before.acknowledge(formatCursor({ seq: 99, streamSeq: 99, tag: TAG }))).toBe("behind");
  });

  test("[CRED3] of a session, an event of any of its runs acknowledges all that came before it", async () => {
    const f = new Fixture();
    for (let i = 0; i < 4; i += 1) for (const run of ["a", "b"]) f.log.append(run, 2);
    const client = await f.follow(SESSION, { window: 10 });
    f.log.pump();
    await f.settle();
    expect(client.events).toHaveLength(10);
    const of = (run: string): { seq: number; streamSeq: number; tag: string } => ({
      seq: 2,
      streamSeq: 1,
      tag: cursorTag(run, "e1"),
    });
    expect(client.acknowledge(formatCursor(of("b")))).toBe("foreign");
    expect(client.acknowledge(formatCursor(of("a")))).toBe("freed");
    await f.settle();
    expect(client.events).toHaveLength(12);
    expect(client.acknowledge(client.events[11]?.cursor)).toBe("freed");
    await f.settle();
    expect(client.events).toHaveLength(16);
  });

  test("[CRED4] deltas come behind the event that they follow, once, and not while credit is used up", async () => {
    const f = await begun();
    const client = await f.follow(RUN, { window: 4 });
    const live = await f.follow(RUN);
    f.log.pump();
    await f.settle();
    f.log.delta("r", 3, "a");
    f.log.delta("r", 3, "b");
    await f.settle();
    f.log.append("r", 1);
    f.log.pump();
    f.log.delta("r", 4, "c");
    await f.settle();
    // Four are unacknowledged: no further delta.
    f.log.delta("r", 4, "d");
    await f.settle();
    const brief = (): unknown[] =>
      client.socket.frames.map((x) => x.seq ?? x.payload?.text ?? x.type);
    expect(brief()).toEqual([1, 2, 3, "caught_up", "a", "b", 4]);
    expect(live.texts).toEqual(["a", "b", "c", "d"]);
    client.acknowledge();
    await f.settle();
    expect(client.texts).toEqual(["a", "b", "c", "d"]);
    // What a checkpoint has settled is not shown any more.
    for (let i = 0; i < 4; i += 1) f.log.append("r", 1);
    f.log.pump();
    await f.settle();
    f.log.delta("r", 8, "late");
    f.log.append("r", 1, { settled: true });
    f.log.pump();
    await f.settle();
    client.acknowledge();
    await f.settle();
    expect(client.seqs).toEqual(range(1, 9));
    expect(client.texts).toEqual(["a", "b", "c", "d"]);
  });

  test("[CRED4] deltas reach it where nobody else listens; who wants none gets none", async () => {
    const f = await begun();
    const client = await f.follow(RUN, { window: 9 });
    const plain = await f.follow(RUN, { window: 9, deltas: false });
    f.log.pump();
    await f.settle();
    f.log.delta("r", 3, "a");
    await f.settle();
    expect(client.texts).toEqual(["a"]);
    expect(plain.texts).toEqual([]);
  });

  test("[CRED5] one that acknowledges nothing is not stuck; one whose socket takes nothing is", async () => {
    const f = await begun({ lowWater: 500 }, 1);
    for (let i = 0; i < 9; i += 1) f.log.append("r", 1, { pad: 1_000 });
    const patient = await f.follow(RUN, { window: 2 });
    const stalled = await f.follow(RUN, { window: 5, kernelBytes: 500 });
    f.log.pump();
    await f.settle();
    expect(patient.attachment?.isStuck).toBe(false);
    expect(stalled.attachment?.isStuck).toBe(true);
  });
});
