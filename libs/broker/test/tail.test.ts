import {
  eventually,
  type NatsFilter,
  natsFilter,
  type NatsServer,
  startNats,
  type TcpProxy,
  tcpProxy,
} from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Broker,
  type EventTail,
  LogCorrupt,
  type LogFilter,
  type LogMessage,
  openBroker,
  openRunWriter,
} from "../src/index.ts";
import { freshRun, note, startedWriter, startRun, wholeLog } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;
/** A second node whose live copies the test can lose or hold back. */
let proxy: TcpProxy;
let faulty: Broker;
let judge: (subject: string, headers: string) => "pass" | "drop" | "hold" = () => "pass";
let filter: NatsFilter;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "writer", shards: 2 });
  proxy = await tcpProxy({ port: nats.port });
  filter = natsFilter((m) => judge(m.subject, m.headers));
  proxy.tap(filter.tap);
  faulty = await openBroker({ servers: [proxy.address], name: "reader", shards: 2 });
});
afterAll(async () => {
  await faulty.close();
  await broker.close();
  proxy.close();
  await nats.dispose();
});

interface Followed {
  readonly tail: EventTail;
  readonly messages: LogMessage[];
  readonly late: LogMessage[];
  fault: Error | undefined;
  level: boolean;
}

function follow(on: Broker, filterOf: LogFilter, after = 0): Followed {
  const messages: LogMessage[] = [];
  const late: LogMessage[] = [];
  const followed: Followed = {
    messages,
    late,
    fault: undefined,
    level: false,
    tail: on.events.tail(filterOf, after, {
      message: (m, isLate) => {
        messages.push(m);
        if (isLate) late.push(m);
      },
      level: () => (followed.level = true),
      fault: (error) => (followed.fault = error),
    }),
  };
  return followed;
}

function dense(messages: readonly LogMessage[]): number {
  let seq = messages[0] ? messages[0].firstSeq - 1 : 0;
  for (const m of messages) {
    expect(m.firstSeq).toBe(seq + 1);
    seq = m.lastSeq;
  }
  return seq;
}

describe("a tail on a real server", () => {
  test("[TAIL1] [TAIL2] [INV2] from the start, from the middle and from the head", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 50; i += 1) await writer.append(note(i));
    const log = await wholeLog(broker, ref);
    const middle = log[25]?.streamSeq ?? 0;
    const head = await broker.events.head(ref);
    const all = follow(broker, { kind: "run", ...ref });
    const half = follow(broker, { kind: "run", ...ref }, middle);
    const next = follow(broker, { kind: "run", ...ref }, head.streamSeq);
    await eventually(() => all.level && half.level && next.level);
    for (let i = 0; i < 50; i += 1) void writer.append(note(i));
    await writer.append({ type: "run.completed", payload: {} });
    await eventually(() => [all, half, next].every((f) => f.messages.at(-1)?.end));
    expect(dense(all.messages)).toBe(102);
    expect(all.messages[0]?.lane).toBe("q");
    expect(dense(half.messages)).toBe(102);
    expect(half.messages[0]?.streamSeq).toBe(log[26]?.streamSeq);
    expect(dense(next.messages)).toBe(102);
    expect(next.messages[0]?.firstSeq).toBe(52);
    for (const f of [all, half, next]) f.tail.close();
  });

  test("[TAIL1] one run of many in the shard sees nothing of the others", async () => {
    const session = freshRun().session;
    const refs = [freshRun(session), freshRun(session), freshRun(session)] as const;
    const writers = await Promise.all(refs.map((ref) => startedWriter(broker, ref)));
    const one = follow(broker, { kind: "run", ...refs[1] });
    const whole = follow(broker, { kind: "session", tenant: "acme", session });
    for (let i = 0; i < 40; i += 1) for (const w of writers) void w.append(note(i));
    await Promise.all(writers.map((w) => w.flush()));
    await eventually(() => one.messages.at(-1)?.lastSeq === 41);
    expect(new Set(one.messages.map((m) => m.run))).toEqual(new Set([refs[1].run]));
    await eventually(() =>
      refs.every((ref) => whole.messages.findLast((m) => m.run === ref.run)?.lastSeq === 41),
    );
    for (const ref of refs) expect(dense(whole.messages.filter((m) => m.run === ref.run))).toBe(41);
    const order = whole.messages.map((m) => m.streamSeq);
    expect(order).toEqual([...order].sort((a, b) => a - b));
    one.tail.close();
    whole.tail.close();
  });

  for (const kind of ["run", "session"] as const) {
    test(`[TAIL5] the live copy of a ${kind}'s very first event is lost: found and repaired`, async () => {
      const ref = freshRun();
      const head = await faulty.events.head(ref);
      const f = follow(faulty, { kind, ...ref }, head.streamSeq);
      await eventually(() => f.level);
      judge = (subject) =>
        subject.startsWith("tl.lv.") && subject.includes(ref.run) ? "drop" : "pass";
      const before = filter.dropped;
      await startRun(broker, ref);
      await eventually(() => filter.dropped > before);
      judge = () => "pass";
      await eventually(() => f.messages.length === 1, { what: "the lost q to be found" });
      expect(f.messages[0]?.firstSeq).toBe(1);
      f.tail.close();
    });

    test(`[TAIL3] a lost q of a ${kind} is read before its first e is delivered`, async () => {
      const ref = freshRun();
      const head = await faulty.events.head(ref);
      const f = follow(faulty, { kind, ...ref }, head.streamSeq);
      await eventually(() => f.level);
      judge = (subject) => (subject.includes(`${ref.run}.q`) ? "drop" : "pass");
      const writer = await startedWriter(broker, ref);
      await writer.append(note("first"));
      await eventually(() => f.messages.length === 2);
      judge = () => "pass";
      expect(dense(f.messages)).toBe(2);
      f.tail.close();
    });
  }

  test("[TAIL5] the last message of a burst is lost: found without a successor", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const f = follow(faulty, { kind: "run", ...ref });
    await eventually(() => f.level);
    await writer.append(note("seen"));
    await eventually(() => f.messages.length === 2);
    judge = (subject) =>
      subject.startsWith("tl.lv.") && subject.includes(ref.run) ? "drop" : "pass";
    const before = filter.dropped;
    await writer.append({ type: "run.completed", payload: {} });
    await eventually(() => filter.dropped > before);
    judge = () => "pass";
    await eventually(() => f.messages.at(-1)?.end === true);
    expect(dense(f.messages)).toBe(3);
    f.tail.close();
  });

  test("[TAIL10] on a session, a run's lost message comes late, marked, and its own order holds", async () => {
    const session = freshRun().session;
    const [a, b] = [freshRun(session), freshRun(session)] as const;
    const wa = await startedWriter(broker, a);
    const wb = await startedWriter(broker, b);
    const f = follow(faulty, { kind: "session", tenant: "acme", session });
    await eventually(() => f.messages.length === 2 && f.level);
    let lose = true;
    judge = (subject) => {
      if (!lose || !subject.startsWith("tl.lv.") || !subject.includes(a.run)) return "pass";
      lose = false;
      return "drop";
    };
    await wa.append(note("lost"));
    await eventually(() => !lose);
    await wb.append(note("b"));
    await eventually(() => f.messages.length === 3);
    await wa.append(note("reveals it"));
    await eventually(() => f.messages.length === 5);
    judge = () => "pass";
    expect(dense(f.messages.filter((m) => m.run === a.run))).toBe(3);
    expect(f.late.map((m) => m.firstSeq)).toEqual([2]);
    f.tail.close();
  });

  test("[C25] [TAIL3] [TAIL4] live copies delayed and reordered between nodes: stream order only", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const f = follow(faulty, { kind: "run", ...ref });
    await eventually(() => f.level);
    let n = 0;
    judge = (subject) => {
      if (!subject.startsWith("tl.lv.") || !subject.includes(ref.run)) return "pass";
      n += 1;
      return n % 3 === 0 ? "hold" : "pass";
    };
    for (let i = 0; i < 60; i += 1) {
      await writer.append(note(i));
      if (i % 10 === 9) filter.release((held) => held.toReversed());
    }
    judge = () => "pass";
    filter.release((held) => held.toReversed());
    await eventually(() => f.messages.at(-1)?.lastSeq === 61);
    expect(dense(f.messages)).toBe(61);
    f.tail.close();
  });

  test("[TAIL7] a backlog far above what may wait is delivered whole while the run goes on", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const big = "z".repeat(100_000);
    for (let i = 0; i < 120; i += 1) await writer.append(note(big));
    const f = follow(broker, { kind: "run", ...ref });
    for (let i = 0; i < 120; i += 1) await writer.append(note(big));
    await eventually(() => f.messages.at(-1)?.lastSeq === 241, { timeoutMs: 20_000 });
    expect(dense(f.messages)).toBe(241);
    f.tail.close();
  });

  test("[TAIL9] the connection is cut again and again, and the reader misses nothing", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const f = follow(faulty, { kind: "run", ...ref });
    for (let i = 0; i < 200; i += 1) {
      await writer.append(note(i));
      if (i % 50 === 25) proxy.cut();
    }
    await eventually(() => f.messages.at(-1)?.lastSeq === 201, { timeoutMs: 20_000 });
    expect(dense(f.messages)).toBe(201);
    f.tail.close();
  });

  test("[TAIL8] another incarnation of the run ends the tail with a fault", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const f = follow(broker, { kind: "run", ...ref });
    const last = await writer.append(note("mine"));
    await eventually(() => f.messages.length === 2);
    const other = openRunWriter(broker, {
      ref,
      epoch: "another",
      attempt: 2,
      worker: "w2",
      position: { seq: 2, streamSeq: last.streamSeq, eSeq: last.streamSeq, cmd: 0 },
    });
    await other.append(note("stranger"));
    await eventually(() => f.fault);
    expect(f.fault).toBeInstanceOf(LogCorrupt);
    expect(f.messages.length).toBe(2);
  });

  test("[C05] [READ2] of 10,001 stored events the last is found by position, in one message", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 9_999; i += 1) void writer.append(note(i));
    await writer.flush();
    const last = await writer.append({ type: "run.completed", payload: {} });
    const log = await wholeLog(broker, ref);
    const before = log.at(-2)?.streamSeq ?? 0;
    const page = await broker.events.read({ kind: "run", ...ref }, before);
    expect(page.messages.map((m) => m.streamSeq)).toEqual([last.streamSeq]);
    expect(page.end).toBe(true);
  });

  test("[READ2] a page is full at its bytes or messages, with one message more at most", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 30; i += 1) await writer.append(note("x".repeat(20_000)));
    const page = await broker.events.read({ kind: "run", ...ref }, 1, { bytes: 100_000 });
    const bytes = page.messages.reduce((sum, m) => sum + m.body.byteLength, 0);
    expect(bytes).toBeLessThanOrEqual(100_000 + 21_000);
    expect(page.end).toBe(false);
    const few = await broker.events.read({ kind: "run", ...ref }, 0, { messages: 3 });
    expect(few.messages.length).toBeLessThanOrEqual(4);
  });

  test("[READ1] a batch that is cut off is an error, not a short page", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 50; i += 1) await writer.append(note(i));
    judge = (_subject, headers) => (headers.startsWith("NATS/1.0 204") ? "drop" : "pass");
    await expect(faulty.events.read({ kind: "run", ...ref }, 0)).rejects.toThrow("cut off");
    judge = () => "pass";
    expect((await faulty.events.read({ kind: "run", ...ref }, 0)).messages.length).toBe(51);
  });

  test("[READ3] [TAIL6] with upTo, a replica that lags is not believed: the leader has the last word", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 5; i += 1) await writer.append(note(i));
    const { streamSeq } = writer.stored;
    // A replica that knows nothing of the last two messages: they are taken out of its answer.
    judge = (_subject, headers) =>
      [streamSeq, streamSeq - 1].some((seq) => headers.includes(`Nats-Sequence: ${seq}\r\n`)) &&
      headers.includes("Nats-Num-Pending")
        ? "drop"
        : "pass";
    const filterOf = { kind: "run", ...ref } as const;
    const short = await faulty.events.read(filterOf, 0);
    expect(short.end).toBe(true);
    expect(short.messages.at(-1)?.streamSeq).toBeLessThan(streamSeq - 1);
    const seen: number[] = [];
    for (let after = 0; ;) {
      const page = await faulty.events.read(filterOf, after, { upTo: streamSeq });
      seen.push(...page.messages.map((m) => m.firstSeq));
      after = page.messages.at(-1)?.streamSeq ?? after;
      if (page.end) break;
    }
    judge = () => "pass";
    expect(seen).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test("[READ4] [INV11] a stream position is handed out only for the run or session it is of", async () => {
    const [mine, other] = [freshRun("ses_mine"), freshRun("ses_mine")] as const;
    const started = await startRun(broker, mine);
    const at = started.outcome === "stored" ? started.streamSeq : 0;
    expect((await broker.events.at(mine, at))?.run).toBe(mine.run);
    expect(await broker.events.at(other, at)).toBeUndefined();
    expect((await broker.events.at({ tenant: "acme", session: "ses_mine" }, at))?.run).toBe(
      mine.run,
    );
    expect(await broker.events.at({ tenant: "evil", session: "ses_mine" }, at)).toBeUndefined();
  });

  test("[TAIL11] [C11] hundreds of tails make no consumer", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const many = Array.from({ length: 300 }, () => follow(broker, { kind: "run", ...ref }));
    await writer.append(note(1));
    await eventually(() => many.every((f) => f.messages.length === 2));
    for (const shard of [0, 1]) {
      const info = await broker.jsm.streams.info(`TL_EV_${shard}`);
      expect(info.state.consumer_count).toBe(0);
    }
    for (const f of many) f.tail.close();
  });
});
