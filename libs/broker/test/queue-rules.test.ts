import { seededRandom } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { differences, jobConsumerConfig } from "../src/consumer.ts";
import { nakOf, parseDelivery } from "../src/delivery.ts";
import type { LogMessage } from "../src/index.ts";
import { pullEnd } from "../src/pull.ts";
import { retentionProblem } from "../src/retention.ts";
import { RoomShare } from "../src/room.ts";
import { snapshotVerdict } from "../src/snapshot-store.ts";
import { standingVerdict } from "../src/standing.ts";
import { Absences, dueAt, sweepVerdict, unbegunVerdict } from "../src/sweep-rules.ts";

function last(over: Partial<LogMessage>): LogMessage {
  return {
    run: "run_1",
    streamSeq: 20,
    prev: 10,
    firstSeq: 2,
    lastSeq: 5,
    attempt: 1,
    writer: "a",
    worker: "w1",
    epoch: "e1",
    cmd: 0,
    barrier: 0,
    settled: 0,
    end: false,
    lane: "e",
    body: new Uint8Array(),
    ...over,
  };
}

describe("sharing room", () => {
  test("[QUE2] [QUE3] never more than is free, never two pulls on a lane, every lane within one cycle", () => {
    const random = seededRandom();
    for (let round = 0; round < 200; round += 1) {
      const lanes = random.between(1, 24);
      const share = new RoomShare({ lanes, expiresMs: 5_000 });
      const served = new Set<number>();
      let waited = 0;
      const free = random.between(1, 3 * lanes);
      while (served.size < lanes) {
        const idle = new Set(Array.from({ length: lanes }, (_, i) => i));
        const orders = share.orders(free, idle);
        expect(orders.length).toBeGreaterThan(0);
        expect(orders.reduce((sum, order) => sum + order.batch, 0)).toBeLessThanOrEqual(free);
        expect(new Set(orders.map((order) => order.lane)).size).toBe(orders.length);
        for (const order of orders) served.add(order.lane);
        if (served.size < lanes) waited += Math.max(...orders.map((order) => order.expiresMs));
      }
      expect(waited).toBeLessThanOrEqual(1_250);
    }
  });

  test("[QUE2] nothing is asked for without room or without an idle lane", () => {
    const share = new RoomShare({ lanes: 2, expiresMs: 5_000 });
    expect(share.orders(0, new Set([0, 1]))).toEqual([]);
    expect(share.orders(-3, new Set([0, 1]))).toEqual([]);
    expect(share.orders(10, new Set())).toEqual([]);
  });

  test("[QUE3] with plenty of room a lane keeps some for its next pull while others wait", () => {
    const share = new RoomShare({ lanes: 4, expiresMs: 5_000 });
    const orders = share.orders(64, new Set([0, 1, 2, 3]));
    expect(orders.map((order) => order.batch)).toEqual([8, 8, 8, 8]);
    expect(orders.map((order) => order.expiresMs)).toEqual([5_000, 5_000, 5_000, 5_000]);
    expect(share.orders(32, new Set([2]))).toEqual([{ lane: 2, batch: 4, expiresMs: 5_000 }]);
  });
});

describe("what a pull's end means", () => {
  test.each([
    [404, "No Messages", "done"],
    [408, "Request Timeout", "done"],
    [409, "Leadership Change", "retry"],
    [409, "Server Shutdown", "retry"],
    [409, "Exceeded MaxWaiting", "retry"],
    [409, "Consumer Deleted", "gone"],
    [503, "", "gone"],
    [400, "Bad Request - invalid character", "refused"],
    [409, "Consumer is push based", "refused"],
    [409, "Exceeded MaxRequestBatch of 1", "refused"],
  ])("[QUE11] %i %s: %s", (code, description, kind) => {
    expect(pullEnd(code, description).kind).toBe(kind);
  });
});

describe("deliveries", () => {
  const message = (reply: string): Parameters<typeof parseDelivery>[0] =>
    ({
      subject: "tl.ev.0.t.s.r.q.a",
      reply,
      headers: { get: () => "" },
      data: new Uint8Array(),
    }) as never;

  test("[QUE4] both forms of the ack token are read", () => {
    const short = parseDelivery(message("$JS.ACK.TL_EV_0.agent_a.3.17.21.1764532800123456789.4"));
    const long = parseDelivery(
      message("$JS.ACK.hub.ACCHASH.TL_EV_0.agent_a.3.17.21.1764532800123456789.4.rand"),
    );
    for (const delivery of [short, long]) {
      expect(delivery).toMatchObject({ delivered: 3, streamSeq: 17, storedAt: 1_764_532_800_123 });
    }
    expect(parseDelivery(message("_INBOX.x"))).toBeUndefined();
    expect(parseDelivery(message("$JS.ACK.short"))).toBeUndefined();
  });

  test("[SWP3] a nak's delay is in whole nanoseconds", () => {
    expect(nakOf()).toBe("-NAK");
    expect(nakOf(-5)).toBe("-NAK");
    expect(nakOf(1.2)).toBe('-NAK {"delay": 2000000}');
  });
});

describe("consumer settings", () => {
  const job = { stream: "TL_EV_0", name: "agent_a", filter: "f", ackWaitMs: 1_000 };

  test("[QUE1] each difference is told, and what NATS does not change is told apart", () => {
    const want = jobConsumerConfig(job);
    expect(differences(want, want)).toEqual([]);
    const have = { ...want, ack_wait: 5, max_waiting: 512, deliver_policy: "new" as never };
    expect(differences(have, want).map((d) => [d.setting, d.kind])).toEqual([
      ["deliver_policy", "needed"],
      ["ack_wait", "changeable"],
      ["max_waiting", "wanted"],
    ]);
    expect(differences({ ...want, backoff: [1, 2] }, want).map((d) => d.setting)).toEqual([
      "backoff",
    ]);
  });
});

describe("what the log says of a job", () => {
  const body = new Uint8Array();
  const job = { streamSeq: 10, epoch: "e1", body };

  test.each([
    ["nothing written", { job, last: undefined }, "fresh"],
    ["somebody wrote", { job, last: last({}) }, "begun"],
    ["the terminal is stored", { job, last: last({ end: true }) }, "ended"],
    [
      "its terminal, of another incarnation",
      { job, last: last({ end: true, epoch: "e0" }) },
      "ended",
    ],
    ["the job has expired", { job: undefined, last: last({}) }, "stale"],
    [
      "the job was stored anew",
      { job: { streamSeq: 30, epoch: "e2", body }, last: undefined },
      "stale",
    ],
    [
      "the stream was made anew",
      { job: { streamSeq: 10, epoch: "e2", body }, last: undefined },
      "stale",
    ],
    ["another incarnation wrote", { job, last: last({ epoch: "e0" }) }, "foreign"],
  ])("[QUE4] [QUE14] %s: %s", (_what, standing, kind) => {
    expect(standingVerdict(job, standing).kind).toBe(kind);
  });
});

describe("sweeping", () => {
  const job = { streamSeq: 10, epoch: "e1", queuedAt: 1_000, deadline: 9_000 };
  const stored = { streamSeq: 10, epoch: "e1", body: new Uint8Array() };

  test("[SWP1] a job is due after its time in the queue, or at its deadline if that is earlier", () => {
    expect(dueAt(job, 3_000)).toBe(4_000);
    expect(dueAt(job, 30_000)).toBe(9_000);
  });

  test.each([
    ["ended", { job: stored, last: last({ end: true }) }, 20_000, { kind: "over" }],
    ["nothing left", { job: undefined, last: undefined }, 20_000, { kind: "over" }],
    ["not begun", { job: stored, last: undefined }, 8_999, { kind: "unbegun" }],
    [
      "not begun at its deadline",
      { job: stored, last: undefined },
      9_000,
      { kind: "fail", code: "deadline" },
    ],
    ["at work", { job: stored, last: last({}) }, 8_999, { kind: "later", at: 9_500 }],
    [
      "at work at its deadline",
      { job: stored, last: last({}) },
      9_499,
      { kind: "later", at: 9_500 },
    ],
    [
      "at work after its grace",
      { job: stored, last: last({}) },
      9_500,
      { kind: "fail", code: "deadline" },
    ],
    [
      "job expired, at work",
      { job: undefined, last: last({}) },
      8_999,
      { kind: "later", at: 9_500 },
    ],
    [
      "job expired, past it",
      { job: undefined, last: last({}) },
      9_501,
      { kind: "fail", code: "deadline" },
    ],
    [
      "foreign, past it",
      { job: stored, last: last({ epoch: "e0" }) },
      9_501,
      { kind: "fail", code: "deadline" },
    ],
  ])("[SWP2] [SWP3] [SWP4] [SWP8] %s", (_what, standing, now, verdict) => {
    expect(sweepVerdict(job, standing, now, 500)).toEqual(verdict);
  });

  test("[SWP2] an agent is missing only when it was missing a heartbeat ago as well", () => {
    const times = { queueTimeoutMs: 3_000, confirmMs: 500 };
    expect(unbegunVerdict(job, undefined, 4_000, times)).toEqual({ kind: "later", at: 7_000 });
    expect(unbegunVerdict(job, 4_000, 4_000, times)).toEqual({ kind: "hold", until: 4_500 });
    expect(unbegunVerdict(job, 4_000, 4_499, times)).toEqual({ kind: "hold", until: 4_500 });
    expect(unbegunVerdict(job, 4_000, 4_500, times)).toEqual({
      kind: "fail",
      code: "agent_unavailable",
    });
  });

  test("[SWP2] an absence counts from its first look, and ends when the agent is seen or nobody looks", () => {
    const absences = new Absences(500);
    expect(absences.look("a", false, 1_000)).toBe(1_000);
    expect(absences.look("a", false, 1_400)).toBe(1_000);
    expect(absences.look("b", false, 1_400)).toBe(1_400);
    expect(absences.look("a", true, 1_500)).toBeUndefined();
    expect(absences.look("a", false, 1_600)).toBe(1_600);
    expect(absences.look("a", false, 5_000)).toBe(5_000);
  });

  test("[SWP7] retention under twice the deadline is told; none is enough", () => {
    expect(retentionProblem(0, 1_000)).toBeUndefined();
    expect(retentionProblem(2_000, 1_000)).toBeUndefined();
    expect(retentionProblem(1_999, 1_000)).toContain("at least 2000 ms");
  });
});

describe("fencing snapshots", () => {
  const mark = { seq: 10, attempt: 2, epoch: "e1" };

  test.each([
    ["the first", undefined, "replace"],
    ["of a newer attempt", { ...mark, attempt: 3, seq: 5 }, "fenced"],
    ["of an older attempt", { ...mark, attempt: 1 }, "replace"],
    ["of an earlier event", { ...mark, seq: 9 }, "replace"],
    ["the same", mark, "covered"],
    ["of a later event", { ...mark, seq: 11 }, "covered"],
    ["of another incarnation", { ...mark, epoch: "e0", attempt: 9 }, "other epoch"],
  ])("[SNP2] what is held is %s: %s", (_what, held, verdict) => {
    expect(snapshotVerdict(held, mark)).toBe(verdict);
  });
});
