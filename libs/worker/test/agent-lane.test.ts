import { QueueFull, type RunWriter, type StoredAt } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { describe, expect, it } from "vitest";
import { AgentLane } from "../src/agent-lane.ts";
import { type AgentError, RunStopped } from "../src/failure.ts";

/** A writer with room for `room` events, until `drain` is called. Takes and refuses as the real one does. */
function fakeWriter(room: number): {
  writer: RunWriter;
  taken: string[];
  drain: (more: number) => void;
} {
  const taken: string[] = [];
  let left = room;
  let seq = 0;
  let wake: (() => void)[] = [];
  const writer = {
    get seq() {
      return seq;
    },
    append(event: NewEvent): Promise<StoredAt> {
      if (left <= 0) return Promise.reject(new QueueFull("full"));
      left--;
      seq++;
      taken.push(event.type === "custom" ? event.payload.name : event.type);
      return Promise.resolve({ seq, streamSeq: seq });
    },
    ready: () =>
      left > 0 ? Promise.resolve() : new Promise<void>((resolve) => wake.push(resolve)),
    text: (id: string) => ({
      length: 0,
      write: async () => void taken.push(`text of ${id}`),
      end: async () => undefined,
    }),
  };
  return {
    writer: writer as unknown as RunWriter,
    taken,
    drain: (more) => {
      left += more;
      for (const one of wake) one();
      wake = [];
    },
  };
}

function lane(
  room: number,
): ReturnType<typeof fakeWriter> & { lane: AgentLane; overflows: AgentError[] } {
  const fake = fakeWriter(room);
  const overflows: AgentError[] = [];
  return {
    ...fake,
    overflows,
    lane: new AgentLane({
      writer: fake.writer,
      session: "ses_1",
      run: "run_1",
      onOverflow: (error) => overflows.push(error),
    }),
  };
}

const custom = (name: string): NewEvent => ({ type: "custom", payload: { name, value: 1 } });

describe("the agent's lane", () => {
  it("[HOST5] a message whose beginning is refused by the fence leaves no rejection behind that nobody handles", async () => {
    const { lane: it } = lane(1);
    const unhandled: unknown[] = [];
    const listen = (reason: unknown): void => void unhandled.push(reason);
    // Before the test runner's own, which would fail the run without saying which test it was.
    process.prependListener("unhandledRejection", listen);
    const started = Promise.reject<StoredAt>(new Error("fenced"));
    const text = it.text("msg_1", undefined, started);
    // Rejections that nobody handles are told after the microtasks of a turn.
    await new Promise((resolve) => setImmediate(resolve));
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
    await expect(text.write("late")).rejects.toThrow("fenced");
  });

  it("[OPS7] keeps the order of the calls while the queue is full, whatever would fit in between", async () => {
    const { lane: it, taken, drain } = lane(1);
    const all = ["a", "b", "c", "d"].map((name) => it.append(custom(name)));
    await all[0];
    drain(1);
    await all[1];
    const late = it.append(custom("e"));
    drain(10);
    await Promise.all([...all, late]);
    expect(taken).toEqual(["a", "b", "c", "d", "e"]);
    const seqs = await Promise.all([...all, late]);
    expect(seqs.map((at) => at.seq)).toEqual([1, 2, 3, 4, 5]);
  });

  it("[OPS7] text waits for its message's own event", async () => {
    const { lane: it, taken, drain } = lane(1);
    void it.append(custom("a"));
    const started = it.append({
      type: "message.started",
      payload: { message_id: "m1", role: "assistant", channel: "text" },
    });
    const text = it.text("m1", undefined, started);
    const written = text.write("hello");
    drain(1);
    await written;
    expect(taken).toEqual(["a", "message.started", "text of m1"]);
  });

  it("[OPS9] an agent that awaits nothing and outruns the log is told, and is bounded", async () => {
    const { lane: it, overflows } = lane(0);
    const all = Array.from({ length: 1_001 }, (_, i) => it.append(custom(`e${i}`)));
    await expect(all[1_000]).rejects.toMatchObject({ code: "overflow" });
    expect(overflows).toHaveLength(1);
  });

  it("[FIN4] takes nothing after the stop, not even what was waiting", async () => {
    const { lane: it, taken, drain } = lane(1);
    await it.append(custom("a"));
    const waiting = it.append(custom("b"));
    it.stop(new RunStopped("cancelled"));
    drain(10);
    await expect(waiting).rejects.toThrow(RunStopped);
    await expect(it.append(custom("c"))).rejects.toThrow(RunStopped);
    expect(taken).toEqual(["a"]);
  });

  it.each([
    ["a value that is not JSON", { type: "custom", payload: { name: "x", value: 1n } }],
    ["a function for a value", { type: "custom", payload: { name: "x", value: () => 1 } }],
    ["a name that is too long", { type: "custom", payload: { name: "x".repeat(257), value: 1 } }],
    [
      "negative usage",
      { type: "usage.updated", payload: { model: "m", input_tokens: -1, output_tokens: 0 } },
    ],
  ] as unknown as [string, NewEvent][])("[OPS8] refuses %s", async (_, event) => {
    const { lane: it, taken } = lane(5);
    await expect(it.append(event)).rejects.toMatchObject({ code: "invalid_event" });
    expect(taken).toEqual([]);
  });
});
