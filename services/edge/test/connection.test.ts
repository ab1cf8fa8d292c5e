import type { CommandRequest } from "@throughline/broker";
import { cursorTag, formatCursor, FRAME_RATE } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import { SessionRecords } from "../src/commands/sessions.ts";
import { Slots } from "../src/lifecycle/admission.ts";
import { connectionMetrics } from "../src/metrics.ts";
import { Connection } from "../src/session/connection.ts";
import type { ConnectionServices } from "../src/session/connection-services.ts";
import { inflowLimits } from "../src/session/inflow.ts";
import { Fixture } from "./fanout-fixture.ts";
import type { FakeSocket } from "./fake-net.ts";

interface Bench {
  readonly f: Fixture;
  readonly socket: FakeSocket;
  readonly connection: Connection;
  readonly waiting: { request: CommandRequest; answer: () => void }[];
  readonly gone: { count: number };
  readonly say: (frame: object) => void;
}

/** A connection over the fake fan-out, whose commands are stored when the test says so. */
function open(kernelBytes?: number): Bench {
  const f = new Fixture();
  const waiting: Bench["waiting"] = [];
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const record = { tenant: "t", owner: "ann", members: {}, created_at: 1 };
  const sessions = new SessionRecords({ get: () => Promise.resolve(record) }, () => f.time);
  const services: ConnectionServices = {
    subscribing: {
      node: f.node,
      hubs: f.hubs,
      sessions,
      ...f.sources,
      attaches: new Slots(2, 10),
      log,
    },
    commands: {
      events: {
        last: (filter, from) => f.log.last(filter, from),
        start: () => Promise.reject(new Error("no")),
      },
      commands: {
        publish: (request) =>
          new Promise((resolve) => {
            const answer = (): void => resolve({ outcome: "stored", streamSeq: 1 });
            waiting.push({ request, answer });
          }),
        find: () => Promise.reject(new Error("no run has ended")),
      },
      sessions,
      creator: { create: () => Promise.reject(new Error("no")) },
      memberships: {
        add: () => Promise.reject(new Error("no")),
        remove: () => Promise.reject(new Error("no")),
      },
      runIndex: { put: () => Promise.resolve() },
      states: { current: () => Promise.resolve(undefined) },
      offload: (_ref, value) => Promise.resolve(value),
      log,
      wallClock: () => 1_000,
      wait: () => Promise.resolve(),
      deadlineMs: 1_000,
    },
    limits: {
      quietMs: 20_000,
      probeMs: 25_000,
      silentMs: 55_000,
      stuckMs: 30_000,
      commentMs: 15_000,
      membershipMs: 30_000,
      inflow: inflowLimits(100),
    },
    nodeId: "n",
    now: () => f.time,
    metrics: connectionMetrics(),
  };
  const socket = f.net.open(kernelBytes);
  const gone = { count: 0 };
  const connection = new Connection(services, socket, { tenant: "t", user: "ann" }, () => {
    gone.count += 1;
  });
  connection.open("con_1", undefined, undefined);
  return {
    f,
    socket,
    connection,
    waiting,
    gone,
    say: (frame) => connection.received(JSON.stringify(frame), JSON.stringify(frame).length),
  };
}

const ackOf = (subscription_id: string, cursor: string): object => ({
  type: "ack",
  id: "ack",
  payload: { subscription_id, cursor },
});
const steer = (id: string): object => ({ type: "run.resume", id, session_id: "s", run_id: "r" });

describe("a connection", () => {
  test("[CON7] the next command is carried out when the one before it has its answer", async () => {
    const { f, socket, waiting, say } = open();
    f.log.append("r", 1);
    for (const id of ["a", "b", "c"]) say(steer(id));
    say({ type: "subscribe", id: "d", session_id: "s", run_id: "r" });
    for (const id of ["a", "b", "c"]) {
      await f.settle();
      expect(waiting.map((w) => w.request.command.id)).toEqual([id]);
      expect(socket.frames.some((x) => x.type === "subscribed")).toBe(false);
      waiting.shift()?.answer();
    }
    await f.settle();
    expect(socket.frames.map((x) => x.type).slice(0, 5)).toEqual([
      "welcome",
      "command.accepted",
      "command.accepted",
      "command.accepted",
      "subscribed",
    ]);
  });

  test("[CON5] it closes while a subscription begins and a command is on its way: nothing is left", async () => {
    const { f, socket, connection, waiting, gone, say } = open();
    f.log.append("r", 1);
    say({ type: "subscribe", id: "s1", session_id: "s", run_id: "r" });
    say(steer("c1"));
    const frames = socket.frames.length;
    socket.end(1000, "");
    connection.closed();
    await f.settle();
    waiting[0]?.answer();
    await f.settle();
    expect(socket.frames).toHaveLength(frames);
    expect(gone.count).toBe(1);
    f.advance(60_000);
    f.hubs.sweep(f.time);
    expect(f.hubs.size).toBe(0);
  });

  test("[CON5] unsubscribed while it begins: it never does", async () => {
    const { f, socket, say } = open();
    f.log.append("r", 1);
    say({ type: "subscribe", id: "s1", session_id: "s", run_id: "r" });
    say({ type: "unsubscribe", id: "s2", payload: { subscription_id: "sub_1" } });
    f.log.pump();
    await f.settle();
    f.log.pump();
    await f.settle();
    expect(socket.frames.map((x) => x.type)).toEqual(["welcome", "unsubscribed"]);
  });

  test("[CON6] quiet for 20 s: heartbeat, unless events came; silent for 55 s: 4408; a pong is word", async () => {
    const { f, socket, connection, say } = open();
    f.log.append("r", 1);
    say({ type: "subscribe", id: "s1", session_id: "s", run_id: "r" });
    await f.settle();
    f.log.pump();
    await f.settle();
    const beats = (): number => socket.frames.filter((x) => x.type === "heartbeat").length;
    f.time = 19_000;
    f.log.append("r", 1);
    f.log.pump();
    await f.settle();
    f.time = 38_000;
    connection.sweep(f.time);
    expect(beats()).toBe(0);
    f.time = 39_000;
    connection.sweep(f.time);
    connection.sweep(f.time + 5_000);
    expect(beats()).toBe(1);
    connection.heard();
    f.time = 94_000;
    connection.sweep(f.time);
    expect(socket.closed).toBeUndefined();
    connection.sweep(94_001);
    expect(socket.closed?.code).toBe(4408);
  });

  test("[CON6] [RATE5] a client that says nothing is pinged before it is closed, once a silence", async () => {
    const { f, socket, connection } = open();
    for (const [at, pings] of [
      [24_999, 0],
      [25_000, 1],
      [40_000, 1],
    ] as const) {
      f.time = at;
      connection.sweep(f.time);
      expect(socket.pings).toBe(pings);
    }
    connection.heard();
    f.time = 65_000;
    connection.sweep(f.time);
    expect(socket.pings).toBe(2);
    connection.pinged(0);
    f.time = 119_000;
    connection.sweep(f.time);
    expect(socket.closed).toBeUndefined();
  });

  test("[RATE1] over the rate it is refused with the time to wait, and taken again after that", async () => {
    const { f, socket, say } = open();
    const { burst, perSecond } = FRAME_RATE;
    for (let i = 0; i < burst; i += 1) say({ type: "heartbeat", id: `h${i}`, payload: { ts: 1 } });
    say({ type: "run.resume", id: "over", session_id: "s", run_id: "r" });
    say({ type: "nonsense", id: "neither" });
    expect(socket.frames.slice(-2)).toEqual([
      expect.objectContaining({ type: "command.rejected", id: "over", code: "rate_limited" }),
      expect.objectContaining({ type: "error", id: "neither", code: "rate_limited" }),
    ]);
    const wait = socket.frames.at(-1)?.retry_after_ms ?? 0;
    expect(wait).toBe((1_000 * 2) / perSecond);
    f.time += wait + 1_000 / perSecond;
    say({ type: "heartbeat", id: "after", payload: { ts: 1 } });
    expect(socket.frames.at(-1)).toMatchObject({ type: "heartbeat.ack", id: "after" });
    expect(socket.closed).toBeUndefined();
  });

  test.each([
    ["commands", (b: Bench) => b.say({ type: "heartbeat", id: "h", payload: { ts: 1 } })],
    ["wrong ones", (b: Bench) => b.say({ type: "subscribe", id: "h", payload: {} })],
    ["pings", (b: Bench) => b.connection.pinged(0)],
    ["bytes", (b: Bench) => b.connection.received(JSON.stringify(steer("c")), 400_000)],
    ["acks of nothing new", (b: Bench) => b.say(ackOf("sub_1", "0-0-t"))],
  ])("[RATE1] [RATE2] too many %s, although they are refused: 4429", async (_what, send) => {
    const bench = open();
    bench.f.log.append("r", 1);
    bench.say({ type: "subscribe", id: "s", session_id: "s", run_id: "r", payload: { window: 5 } });
    await bench.f.settle();
    const { burst, excess } = FRAME_RATE;
    let frames = 0;
    for (; bench.socket.closed === undefined && frames < 10_000; frames += 1) send(bench);
    expect(bench.socket.closed?.code).toBe(4429);
    expect(frames).toBeLessThanOrEqual(burst + excess + 1);
  });

  test("[RATE2] an ack that frees credit is paid for by its events", async () => {
    const { f, socket, say } = open();
    f.log.append("r", 1);
    say({ type: "subscribe", id: "s", session_id: "s", run_id: "r", payload: { window: 1 } });
    f.log.pump();
    await f.settle();
    const events = 2 * FRAME_RATE.burst;
    for (let i = 1; i < events; i += 1) f.log.append("r", 1);
    f.log.pump();
    await f.settle();
    for (let i = 1; i < events; i += 1) {
      say(ackOf("sub_1", socket.frames.findLast((x) => x.seq !== undefined)?.cursor ?? ""));
      await f.settle();
    }
    expect(socket.frames.filter((x) => x.seq !== undefined)).toHaveLength(events);
    expect(socket.frames.filter((x) => x.type === "error")).toEqual([]);
  });

  test("[CRED3] an ack that is wrong is told why", async () => {
    const { f, socket, say } = open();
    f.log.append("r", 2);
    say({ type: "subscribe", id: "s", session_id: "s", run_id: "r", payload: { window: 1 } });
    f.log.pump();
    await f.settle();
    for (const cursor of ["2-1-other", "1-99999999999999999999-t", "9-9-r"])
      say(ackOf("sub_1", cursor));
    const tag = cursorTag("r", "e1");
    say(ackOf("sub_1", formatCursor({ seq: 2, streamSeq: 1, tag })));
    say(ackOf("sub_7", formatCursor({ seq: 1, streamSeq: 1, tag })));
    const errors = socket.frames.filter((x) => x.type === "error");
    expect(errors.map(({ code, id, message }) => ({ code, id, message }))).toEqual([
      { code: "invalid", id: "ack", message: "payload.cursor: is of no event that was sent" },
      { code: "invalid", id: "ack", message: "payload.cursor: is no cursor" },
      { code: "invalid", id: "ack", message: "payload.cursor: is of no event that was sent" },
      { code: "invalid", id: "ack", message: "payload.cursor: is ahead of what was sent" },
      { code: "not_found", id: "ack", message: "this connection never had such a subscription" },
    ]);
    expect(socket.closed).toBeUndefined();
  });

  test("[LAG4] [INV7] one that asks and does not read is stuck, though it follows nothing", async () => {
    const { f, socket, connection, say } = open(0);
    const beat = (): void => say({ type: "heartbeat", id: "h", payload: { ts: 1 } });
    for (; f.time <= 30_000; f.time += 5_000) {
      beat();
      connection.sweep(f.time);
      expect(socket.closed).toBeUndefined();
    }
    beat();
    connection.sweep(f.time);
    expect(socket.closed?.code).toBe(4410);
  });

  test("[ATT5] an answer that the socket drops ends the connection, once", async () => {
    const { socket, connection, gone, say } = open();
    socket.send = () => "dropped";
    say({ type: "heartbeat", id: "h", payload: { ts: 1 } });
    expect(socket.closed?.code).toBe(1006);
    connection.drop();
    connection.closed();
    expect(gone.count).toBe(1);
  });
});
