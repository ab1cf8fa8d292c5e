import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Broker,
  EventTooLarge,
  FencedError,
  openBroker,
  openRunWriter,
  QueueFull,
} from "../src/index.ts";
import { eventsOf, freshRun, note, startedWriter, wholeLog } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
});

describe("the run writer", () => {
  test("[WRT1] [WRT2] [WRT9] a burst is packed into few messages, dense in seq, chained by Tl-Prev", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const appends = Array.from({ length: 1_000 }, (_, i) => writer.append(note(i)));
    const at = await Promise.all(appends);
    expect(at.map((a) => a.seq)).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 2));
    const log = await wholeLog(broker, ref);
    expect(log.length).toBeLessThan(8);
    let prev = 0;
    let seq = 0;
    for (const message of log) {
      expect(message.prev).toBe(prev);
      expect(message.firstSeq).toBe(seq + 1);
      const events = eventsOf(message);
      expect(events.length).toBe(message.lastSeq - message.firstSeq + 1);
      expect(events.length).toBeLessThanOrEqual(256);
      for (const event of events) expect(event.seq).toBe((seq += 1));
      prev = message.streamSeq;
    }
    expect(seq).toBe(1_001);
  });

  test("[WRT5] [INV1] an append resolves with a position at which the log has it", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    for (let i = 0; i < 20; i += 1) {
      const { seq, streamSeq } = await writer.append(note(i));
      const stored = await broker.events.at(ref, streamSeq);
      expect(stored?.lastSeq).toBe(seq);
    }
  });

  test("[WRT3] [INV3] the writer of an older attempt is refused and appends nothing more", async () => {
    const ref = freshRun();
    const first = await startedWriter(broker, ref);
    await first.append(note("first"));
    const { seq, streamSeq, eSeq, cmd } = first.stored;
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    const second = openRunWriter(broker, {
      ref,
      epoch: last?.epoch ?? "",
      attempt: 2,
      worker: "w2",
      position: { seq, streamSeq, eSeq, cmd },
    });
    await second.append({ type: "run.resumed", payload: { attempt: 2, worker: "w2" } });
    await expect(first.append(note("zombie"))).rejects.toThrow(FencedError);
    expect(first.signal.aborted).toBe(true);
    await expect(first.append(note("again"))).rejects.toThrow(FencedError);
    const types = (await wholeLog(broker, ref)).flatMap(eventsOf).map((e) => e.type);
    expect(types).toEqual(["run.queued", "custom", "run.resumed"]);
  });

  test("[WRT3] of two attempts that begin at once, one owns the run", async () => {
    const ref = freshRun();
    const one = await startedWriter(broker, ref);
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    const other = openRunWriter(broker, {
      ref,
      epoch: last?.epoch ?? "",
      attempt: 1,
      worker: "w2",
      position: one.stored,
    });
    const outcomes = await Promise.allSettled([one.append(note("a")), other.append(note("b"))]);
    expect(outcomes.filter((o) => o.status === "fulfilled").length).toBe(1);
    const log = (await wholeLog(broker, ref)).flatMap(eventsOf);
    expect(log.map((e) => e.seq)).toEqual([1, 2]);
  });

  test("[WRT10] [C06] a writer from before the stream was made anew begins no log there", async () => {
    const ref = freshRun();
    const shard = broker.shardOf(ref.session);
    const writer = await startedWriter(broker, ref);
    const stream = `TL_EV_${shard}`;
    // The job is gone, and then there is another run of the same id.
    await broker.jsm.streams.purge(stream, {
      filter: `tl.ev.${shard}.acme.${ref.session}.${ref.run}.>`,
    });
    await startedWriter(broker, ref);
    await expect(writer.append(note("old"))).rejects.toThrow(FencedError);
    expect((await wholeLog(broker, ref)).flatMap(eventsOf).map((e) => e.type)).toEqual([
      "run.queued",
    ]);
    const other = freshRun(ref.session);
    const orphan = await startedWriter(broker, other);
    await broker.jsm.streams.purge(stream, {
      filter: `tl.ev.${shard}.acme.${ref.session}.${other.run}.>`,
    });
    await expect(orphan.append(note("old"))).rejects.toThrow(FencedError);
    expect(await wholeLog(broker, other)).toEqual([]);
  });

  test("[WRT6] [INV4] nothing follows the terminal event", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const text = writer.text("msg_1");
    void text.write("unfinished");
    const end = writer.append({ type: "run.completed", payload: { output: { ok: true } } });
    await expect(writer.append(note("late"))).rejects.toThrow("nothing may follow");
    writer.ephemeral({ type: "log", payload: { level: "info", message: "late" } });
    await end;
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    expect(last?.end).toBe(true);
    expect(last && eventsOf(last).at(-1)?.type).toBe("run.completed");
  });

  test("[WRT1] [WRT7] an event that is not taken uses no seq: too large, or the queue is full", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    await expect(writer.append(note("x".repeat(600_000)))).rejects.toThrow(EventTooLarge);
    const big = "y".repeat(400_000);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 40 }, () => writer.append(note(big))),
    );
    const refused = outcomes.filter((o) => o.status === "rejected");
    expect(refused.length).toBeGreaterThan(0);
    for (const o of refused) expect(o.reason).toBeInstanceOf(QueueFull);
    await writer.ready();
    const after = await writer.append(note("after"));
    expect(after.seq).toBe(2 + outcomes.length - refused.length);
  });

  test("[LANE2] [LANE3] [LANE4] chunks, in order, are the text, also where a surrogate pair is cut", async () => {
    const ref = freshRun();
    const seen: { after: number; line: string }[] = [];
    const lane = broker.events.ephemeral({ kind: "run", ...ref }, (m) => {
      for (const line of Buffer.from(m.body).toString("utf8").split("\n")) {
        seen.push({ after: m.after, line });
      }
    });
    const writer = await startedWriter(broker, ref, {
      lane: { windowMs: 2, busyWindowMs: 4, checkpointMs: 10, checkpointBytes: 64 },
    });
    await broker.nc.flush();
    const text = "Grüße 👋🏽 aus 東京 — ".repeat(40);
    const one = writer.text("msg_1");
    const two = writer.text("msg_2", "stp_1");
    for (let i = 0; i < text.length; i += 3) {
      await one.write(text.slice(i, i + 3));
      if (i % 9 === 0) await two.write("·");
      if (i % 60 === 0) await new Promise((resolve) => setTimeout(resolve, 3));
    }
    await Promise.all([one.end(), two.end()]);
    expect(one.length).toBe(text.length);
    const chunks = (await wholeLog(broker, ref))
      .flatMap(eventsOf)
      .flatMap((e) => (e.type === "model.chunk" ? [e.payload] : []));
    let length = 0;
    let whole = "";
    for (const chunk of chunks.filter((c) => c.message_id === "msg_1")) {
      expect(chunk.offset).toBe(length);
      length += chunk.text.length;
      whole += chunk.text;
    }
    expect(whole).toBe(text);
    expect(seen.length).toBeGreaterThan(5);
    for (const { after, line } of seen) {
      const delta: { seq?: number; payload: { message_id: string; offset: number; text: string } } =
        JSON.parse(line);
      expect(delta.seq).toBeUndefined();
      expect(after).toBeGreaterThanOrEqual(1);
      if (delta.payload.message_id === "msg_1") {
        const { offset } = delta.payload;
        expect(text.slice(offset, offset + delta.payload.text.length)).toBe(delta.payload.text);
      }
    }
    lane.close();
  });

  test("[LANE2] a piece of text that fits no event is cut, and not within a character", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const text = `a${"👋".repeat(300_000)}\u0001`;
    const stream = writer.text("msg_1");
    await stream.write("before ");
    await stream.write(text);
    await stream.write(" behind");
    await stream.end();
    const chunks = (await wholeLog(broker, ref))
      .flatMap(eventsOf)
      .flatMap((e) => (e.type === "model.chunk" ? [e.payload.text] : []));
    expect(chunks.join("") === `before ${text} behind`).toBe(true);
    expect(chunks.every((chunk) => Buffer.from(chunk).toString("utf8") === chunk)).toBe(true);
  });

  test("[LANE1] at 100 writes a second, 1,000 writes are stored in under 30 messages", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const text = writer.text("msg_1");
    const from = performance.now();
    // Paced by the clock, one fifth of the ten seconds: 200 writes, so under 6 messages.
    for (let i = 0; i < 200; i += 1) {
      await text.write("word ");
      const behind = from + i * 10 - performance.now();
      if (behind > 0) await new Promise((resolve) => setTimeout(resolve, behind));
    }
    await text.end();
    const log = await wholeLog(broker, ref);
    expect(log.length - 1).toBeLessThanOrEqual(6);
  });
});

describe("the run writer while NATS is away", () => {
  test("[WRT4] [WRT8] appends made while the server is down, killed or frozen are stored once, in order", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const appends: Promise<unknown>[] = [];
    const emit = (count: number): void => {
      for (let i = 0; i < count; i += 1) appends.push(writer.append(note(appends.length)));
    };
    emit(10);
    await nats.kill();
    emit(10);
    await nats.restart();
    await eventually(() => broker.connection === "up");
    emit(10);
    await appends.at(-1);
    await nats.pause();
    emit(10);
    // Longer than a publish waits for its answer: the writer has to find out what became of it.
    await eventually(() => broker.connection === "down", { timeoutMs: 20_000 });
    nats.resume();
    emit(10);
    await Promise.all(appends);
    const events = (await wholeLog(broker, ref)).flatMap(eventsOf);
    expect(events.map((e) => e.seq)).toEqual(events.map((_, i) => i + 1));
    const values = events.flatMap((e) => (e.type === "custom" ? [e.payload.value] : []));
    expect(values).toEqual(appends.map((_, i) => i));
  });
});
