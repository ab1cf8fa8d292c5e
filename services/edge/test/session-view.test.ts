import type { RunEntry } from "@throughline/broker";
import { initialRunState, parseCursor } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import { stateMember } from "../src/fanout/run-snapshot.ts";
import { RunStates } from "../src/runs/run-states.ts";
import { shownRuns } from "../src/runs/session-runs.ts";
import { SessionViews } from "../src/runs/session-view.ts";
import { Fixture, SESSION } from "./fanout-fixture.ts";

const entry = (run: string, queued_at: number, ended_at?: number): RunEntry => ({
  tenant: "t",
  session: "s",
  run,
  agent: "a",
  status: ended_at === undefined ? "running" : "completed",
  by: "ann",
  queued_at,
  ended_at,
});

describe("which runs are shown", () => {
  test("[VIEW1] [VIEW6] all unfinished ones, however old, what the index missed, and the newest", () => {
    const finished = Array.from({ length: 5 }, (_, i) => entry(`f${i}`, 10 - i, 20));
    const entries = [...finished.slice(0, 3), entry("old", 7), ...finished.slice(3)];
    const logged = ["f0", "unnoted", "old"];
    expect(shownRuns(entries, logged, 2)).toEqual(["unnoted", "old", "f0", "f1"]);
    expect(shownRuns([], [])).toEqual([]);
  });
});

describe("a session as of one place", () => {
  test("[VIEW2] a snapshot of what this node has not seen yet is waited for, and one that never comes is said", async () => {
    const f = new Fixture();
    f.log.append("r", 2);
    const hub = await f.hubs.acquire(SESSION);
    if (hub === undefined) throw new Error("a session always has a hub");
    f.log.append("r", 3);
    f.snapshots.set("r", {
      state: { ...initialRunState("r"), seq: 5 },
      seq: 5,
      streamSeq: 2,
      epoch: "e1",
    });
    const asked = [f.sources.views.of(hub), f.sources.views.of(hub)];
    await f.settle();
    f.log.pump();
    const [first, second] = await Promise.all(asked);
    expect(first).toMatchObject({ position: { streamSeq: 2, next: 0 } });
    expect(first?.snapshots).toHaveLength(1);
    // Two that come at once are one reading.
    expect(second).toBe(first);

    f.snapshots.set("r", {
      state: { ...initialRunState("r"), seq: 9 },
      seq: 9,
      streamSeq: 7,
      epoch: "e1",
    });
    const never = f.sources.views.of(hub);
    await f.settle();
    f.advance(f.node.limits.reachMs);
    await expect(never).rejects.toMatchObject({ name: "HubBehind" });
  });

  test("[VIEW5] [STATE2] [C06] snapshots of a log that is gone are shown as they are, or passed over, and wait for nothing", async () => {
    const f = new Fixture();
    f.log.append("again", 2);
    const old = (run: string): void => {
      const state = { ...initialRunState(run), seq: 50 };
      f.snapshots.set(run, { state, seq: 50, streamSeq: 99, epoch: "before" });
    };
    old("gone");
    old("again");
    f.index.push(entry("gone", 1), entry("again", 2));
    const hub = await f.hubs.acquire(SESSION);
    if (hub === undefined) throw new Error("a session always has a hub");
    const view = await f.sources.views.of(hub);
    expect(view.position.streamSeq).toBe(1);
    const seqs = view.snapshots.map(({ run, cursor }) => [run, parseCursor(cursor)?.seq]);
    expect(Object.fromEntries(seqs)).toEqual({ gone: 50, again: 2 });
  });

  test("[VIEW7] a run that cannot be read is left out, and said in the log", async () => {
    const f = new Fixture();
    f.log.append("good", 1);
    const bad = f.log.append("bad", 1);
    f.log.messages[1] = { ...bad, body: Buffer.from('{"type":"run.queued","seq":1}') };
    const hub = await f.hubs.acquire(SESSION);
    if (hub === undefined) throw new Error("a session always has a hub");
    const { snapshots } = await f.sources.views.of(hub);
    expect(snapshots.map(({ run }) => run)).toEqual(["good"]);
    expect(f.logged).toMatchObject([{ run: "bad" }]);
  });

  test("[VIEW4] so much is sent along; the states of further runs are fetched, unfinished ones last", async () => {
    const f = new Fixture();
    const runs = Array.from({ length: 6 }, (_, i) => `r${i}`);
    for (const run of runs) {
      const { streamSeq } = f.log.append(run, 1);
      const app = { text: "x".repeat(450_000) };
      const state = {
        ...initialRunState(run),
        seq: 1,
        app,
        ...(run < "r3" ? { ended_at: 9 } : {}),
      };
      f.snapshots.set(run, { state, seq: 1, streamSeq, epoch: "e1" });
    }
    const hub = await f.hubs.acquire(SESSION);
    if (hub === undefined) throw new Error("a session always has a hub");
    const { snapshots } = await f.sources.views.of(hub);
    expect(snapshots.map(({ run, json }) => [run, json !== undefined])).toEqual([
      ["r3", true],
      ["r4", true],
      ["r5", true],
      ["r0", true],
      ["r1", false],
      ["r2", false],
    ]);
    expect(snapshots.map((snapshot) => stateMember("s", snapshot)).at(-1)).toBe(
      '"state_url":"/v1/sessions/s/runs/r2"',
    );
  });

  test("[VIEW4] [INV7] states go out as the socket drains, however large they are together", async () => {
    const f = new Fixture();
    for (let i = 0; i < 5; i += 1) {
      const { streamSeq } = f.log.append(`r${i}`, 1);
      const state = { ...initialRunState(`r${i}`), seq: 1, app: "x".repeat(300_000) };
      f.snapshots.set(`r${i}`, { state, seq: 1, streamSeq, epoch: "e1" });
    }
    const client = await f.follow(SESSION, { from: "snapshot", kernelBytes: 0 });
    f.log.pump();
    let most = 0;
    for (let round = 0; round < 100 && !client.control.includes("caught_up"); round += 1) {
      await f.settle();
      most = Math.max(most, client.socket.buffered());
      client.socket.drain(50_000);
    }
    expect(client.control).toEqual([...Array<string>(5).fill("snapshot"), "caught_up"]);
    expect(most).toBeLessThan(400_000);
  });
});

describe("the state of a run", () => {
  test("[STATE1] a replica's older snapshot whose successors have expired is not what is told", async () => {
    const f = new Fixture();
    for (let i = 0; i < 6; i += 1) f.log.append("r", 1);
    f.log.expire(4);
    const at = (seq: number): { state: object; seq: number; streamSeq: number; epoch: string } => ({
      state: { ...initialRunState("r"), seq },
      seq,
      streamSeq: seq,
      epoch: "e1",
    });
    const asked: string[] = [];
    const snapshots = {
      read: (_ref: unknown, from: "leader" | "replica") => {
        asked.push(from);
        return Promise.resolve(from === "leader" ? at(5) : at(2));
      },
    };
    const states = new RunStates(f.log, snapshots, f.node.reads);
    const found = await states.current({ tenant: "t", session: "s", run: "r" });
    expect([found?.state.seq, asked]).toEqual([6, ["replica", "leader"]]);
  });

  test("[STATE2] without any snapshot, and with the beginning gone, there is none", async () => {
    const f = new Fixture();
    for (let i = 0; i < 3; i += 1) f.log.append("r", 1);
    f.log.expire(1);
    const states = new RunStates(f.log, f.sources.snapshots, f.node.reads);
    expect(await states.current({ tenant: "t", session: "s", run: "r" })).toBeUndefined();
    const views = new SessionViews(
      { list: () => Promise.resolve([entry("r", 1)]), logged: () => Promise.resolve(["r"]) },
      states,
      { error: () => undefined },
    );
    const hub = await f.hubs.acquire(SESSION);
    if (hub === undefined) throw new Error("a session always has a hub");
    expect((await views.of(hub)).snapshots).toEqual([]);
  });
});
