import type { DurableEvent, NewEvent } from "@throughline/protocol";
import { type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Broker,
  EventTooLarge,
  type MessageAt,
  openBroker,
  openRunWriter,
  WriterFailed,
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

const notes = (count: number, text = ""): NewEvent[] =>
  Array.from({ length: count }, (_, i) => note(`${text}${i}`));

describe("events that are appended together", () => {
  test("[WRT11] stand in one message, whatever waits before and after them", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    // The first message takes 256 of these; the group would begin in the second and not fit.
    const before = notes(500).map((event) => writer.append(event));
    const together = writer.appendAll(notes(100, "g"), { cmd: 7 });
    const after = writer.append(note("after"));
    const at = await together;
    expect(at.seq).toBe(601);
    await Promise.all([...before, after]);
    const log = await wholeLog(broker, ref);
    const holds = log.filter((m) => m.firstSeq <= 601 && m.lastSeq >= 502);
    expect(holds.length).toBe(1);
    expect(holds[0]?.streamSeq).toBe(at.streamSeq);
    // The watermark goes with the group's message and stays.
    expect(log.map((m) => m.cmd)).toEqual(log.map((m) => (m.streamSeq >= at.streamSeq ? 7 : 0)));
    expect(log.flatMap(eventsOf).map((e) => e.seq)).toEqual(
      Array.from({ length: 602 }, (_, i) => i + 1),
    );
  });

  test("[WRT11] more than a message holds: in several full ones, the watermark with the last", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const at = await writer.appendAll(notes(600), { cmd: 9 });
    const log = (await wholeLog(broker, ref)).slice(1);
    expect(log.map((m) => m.lastSeq - m.firstSeq + 1)).toEqual([256, 256, 88]);
    expect(log.map((m) => m.cmd)).toEqual([0, 0, 9]);
    expect(log.at(-1)?.streamSeq).toBe(at.streamSeq);
  });

  test("[WRT11] [WRT1] one that is not taken keeps them all out, and no seq is used", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    const large = [note("a"), note("x".repeat(600_000)), note("b")];
    await expect(writer.appendAll(large)).rejects.toThrow(EventTooLarge);
    const end: NewEvent = { type: "run.cancelled", payload: {} };
    await expect(writer.appendAll([end, note("late")])).rejects.toThrow(RangeError);
    await expect(writer.appendAll([])).rejects.toThrow(RangeError);
    expect((await writer.append(note("c"))).seq).toBe(2);
    await writer.appendAll([note("d"), end]);
    await expect(writer.append(note("late"))).rejects.toThrow("nothing may follow");
    const values = (await wholeLog(broker, ref)).flatMap(eventsOf).map((e) => e.type);
    expect(values).toEqual(["run.queued", "custom", "custom", "run.cancelled"]);
  });
});

describe("what is told when it is stored", () => {
  test("[WRT12] each message once, in order, before its appends resolve, and equal to the log", async () => {
    const ref = freshRun();
    const told: { events: readonly DurableEvent[]; at: MessageAt }[] = [];
    const writer = await startedWriter(broker, ref, {
      onStored: (events, at) => told.push({ events, at }),
    });
    const seen: boolean[] = [];
    const appends = notes(300).map(async (event, i) => {
      const { seq } = await writer.append(event, { cmd: i });
      seen.push(told.some(({ events }) => events.some((e) => e.seq === seq)));
    });
    await Promise.all([...appends, writer.appendAll(notes(3))]);
    expect(seen).toEqual(Array.from({ length: 300 }, () => true));
    const log = (await wholeLog(broker, ref)).slice(1);
    expect(told.flatMap(({ events }) => events)).toEqual(log.flatMap(eventsOf));
    expect(told.map(({ at }) => at)).toEqual(log.map(({ streamSeq, cmd }) => ({ streamSeq, cmd })));
  });

  test("[WRT12] of a fenced writer's events nothing is told", async () => {
    const ref = freshRun();
    const told: number[] = [];
    const first = await startedWriter(broker, ref, {
      onStored: (events) => told.push(...events.map((e) => e.seq)),
    });
    const last = await broker.events.last({ kind: "run", ...ref }, "leader");
    const second = openRunWriter(broker, {
      ref,
      epoch: last?.epoch ?? "",
      attempt: 2,
      worker: "w2",
      position: first.stored,
    });
    await second.append(note("theirs"));
    await expect(first.append(note("ours"))).rejects.toThrow();
    expect(told).toEqual([]);
  });

  test("[WRT12] a listener that throws breaks the writer; what was stored is stored", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref, {
      onStored: () => {
        throw new Error("cannot take it");
      },
    });
    expect((await writer.append(note("a"))).seq).toBe(2);
    await expect(writer.append(note("b"))).rejects.toThrow(WriterFailed);
    expect(writer.signal.aborted).toBe(true);
    expect((await wholeLog(broker, ref)).length).toBe(2);
  });
});

describe("closing a run's text", () => {
  test("[LANE5] all that was written is stored; what its producer still writes is swallowed", async () => {
    const ref = freshRun();
    const writer = await startedWriter(broker, ref, { lane: { checkpointMs: 60_000 } });
    const one = writer.text("msg_1");
    const two = writer.text("msg_2", "stp_1");
    await one.write("Hello");
    await two.write("wor");
    await two.write("ld");
    const closed = writer.closeText();
    await one.write(" nobody");
    await closed;
    await two.write(" reads this");
    await Promise.all([one.end(), two.end()]);
    // Not even kept: a producer that ignores its end must not fill the memory.
    expect([one.length, two.length]).toEqual([5, 5]);
    await writer.appendAll([
      {
        type: "message.completed",
        payload: { message_id: "msg_1", length: 5, finish_reason: "interrupted" },
      },
      { type: "run.interrupted", payload: { preserve_context: true } },
    ]);
    // The same message begun anew by the next execution of the agent.
    const again = writer.text("msg_1");
    await again.write("Anew");
    await again.end();
    const chunks = (await wholeLog(broker, ref))
      .flatMap(eventsOf)
      .flatMap((e) => (e.type === "model.chunk" ? [[e.step_id, e.payload]] : []));
    expect(chunks).toEqual([
      [undefined, { message_id: "msg_1", offset: 0, text: "Hello" }],
      ["stp_1", { message_id: "msg_2", offset: 0, text: "world" }],
      [undefined, { message_id: "msg_1", offset: 0, text: "Anew" }],
    ]);
  });
});
