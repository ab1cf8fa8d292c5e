import type { CommandRequest } from "@throughline/broker";
import { describe, expect, test } from "vitest";
import { SessionRecords } from "../src/commands/sessions.ts";
import { Slots } from "../src/lifecycle/admission.ts";
import { connectionMetrics } from "../src/metrics.ts";
import { Connection } from "../src/session/connection.ts";
import type { ConnectionServices } from "../src/session/connection-services.ts";
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
function open(): Bench {
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
      silentMs: 55_000,
      stuckMs: 30_000,
      commentMs: 15_000,
      membershipMs: 30_000,
    },
    nodeId: "n",
    now: () => f.time,
    metrics: connectionMetrics(),
  };
  const socket = f.net.open();
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
    say: (frame) => connection.received(JSON.stringify(frame)),
  };
}

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
});
