import { describe, expect, it } from "vitest";
import {
  BARRIER_TYPES,
  ForeignEventError,
  HoleError,
  initialRunState,
  messageText,
  reduce,
  type MessageState,
  type NewEvent,
} from "../src/index.ts";
import {
  RUN,
  after,
  chunk,
  delta,
  first,
  interrupted,
  opened,
  queued,
  resumed,
  running,
  started,
  stored,
  writing,
} from "./events.ts";

describe("order", () => {
  it("[RED7] a hole throws, and says where", () => {
    expect(() => reduce(writing, stored(writing.seq + 2, started))).toThrow(new HoleError(4, 5));
    expect(() => reduce(initialRunState(), stored(2, started))).toThrow(HoleError);
  });

  it("[RED7] another run's event throws, its delta is passed over", () => {
    const foreign = { ...stored(4, started), run_id: "run_2" };
    expect(() => reduce(writing, foreign)).toThrow(ForeignEventError);
    expect(reduce(writing, delta(0, "x", { run_id: "run_2" }))).toBe(writing);
  });

  it("[RED8] an event of a newer version takes its place and answers its command", () => {
    const state = reduce(
      writing,
      stored(4, { type: "run.levitated", payload: 1, reply_to: "cmd_9" }),
    );
    expect(state).toEqual({
      ...writing,
      seq: 4,
      updated_at: 4_000,
      applied: { ...writing.applied, cmd_9: 4 },
    });
    const notice = { type: "weather", session_id: "ses_1", run_id: RUN, payload: {} };
    expect(reduce(state, notice)).toBe(state);
  });

  it("[RED8] fields of a newer version are not kept", () => {
    const later: object = JSON.parse('{"later":1,"__proto__":{"later":1}}');
    const openings = [
      "tool_call.created",
      "approval.requested",
      "input.requested",
      "artifact.ready",
      "step.started",
      "message.started",
      "run.failed",
    ];
    for (const type of openings) {
      const state = reduce(writing, stored(4, { type, payload: later }));
      expect(JSON.stringify(state), type).not.toContain("later");
      expect("later" in {}, type).toBe(false);
    }
  });

  it("[RED3] takes a run's first event into a state that does not know its id", () => {
    expect(after(initialRunState(), queued)).toMatchObject({
      run_id: RUN,
      session_id: "ses_1",
      status: "queued",
      agent: "llm",
    });
  });
});

describe("text", () => {
  it("[RED9] a chunk settles the deltas before it and keeps those after it", () => {
    const shown = after(writing, delta(0, "Hello wo"), delta(8, "rld"));
    expect(first(shown)).toMatchObject({ text: "", live: "Hello world" });
    expect(first(after(shown, chunk(0, "Hello ")))).toMatchObject({
      text: "Hello ",
      live: "world",
    });
  });

  it("[RED9] a chunk before the settled end rewrites the text from there on", () => {
    const shown = after(writing, chunk(0, "Hello world"), delta(11, "!"));
    expect(first(after(shown, chunk(6, "you")))).toMatchObject({ text: "Hello you", live: "" });
  });

  it("[RED9] a chunk beyond the settled end is put at it, and what was live is dropped", () => {
    const shown = after(writing, chunk(0, "ab"), delta(2, "cdef"));
    expect(first(after(shown, chunk(4, "ef")))).toMatchObject({ text: "abef", live: "" });
  });

  it("[RED10] a delta adds what is new in it", () => {
    const shown = after(writing, delta(0, "abc"));
    expect(first(after(shown, delta(1, "bcde"))).live).toBe("abcde");
    expect(reduce(shown, delta(1, "bc"))).toBe(shown);
    expect(reduce(shown, delta(4, "x"))).toBe(shown);
    expect(first(after(shown, chunk(0, "abcd"), delta(2, "cdef")))).toMatchObject({
      text: "abcd",
      live: "ef",
    });
  });

  it.each([
    ["of an older attempt", after(running, resumed(2), opened()), delta(0, "x")],
    ["of an attempt still to come", writing, delta(0, "x", { attempt: 2 })],
    ["of a paused run", after(writing, interrupted), delta(0, "x")],
    ["of a run that ended", after(writing, { type: "run.completed", payload: {} }), delta(0, "x")],
    ["of a message that is not there", running, delta(0, "x")],
    [
      "of a completed message",
      after(writing, {
        type: "message.completed",
        payload: { message_id: "msg_1", length: 0, finish_reason: "stop" },
      }),
      delta(0, "x"),
    ],
  ])("[RED10] a delta %s is dropped", (_, state, event) => {
    expect(reduce(state, event)).toBe(state);
  });

  it("[RED10] a message's end drops what is live in it", () => {
    const payload = { message_id: "msg_1", length: 2, finish_reason: "stop" };
    const ended = after(writing, chunk(0, "ab"), delta(2, "c"), {
      type: "message.completed",
      payload,
    });
    expect(first(ended)).toMatchObject({
      text: "ab",
      live: "",
      status: "completed",
      finish_reason: "stop",
    });
  });

  it("[RED11] a delta looks at no text, neither its message's nor another's", () => {
    const forbidden = { message_id: "msg_0" } as MessageState;
    Object.defineProperty(forbidden, "text", {
      get: () => expect.unreachable("read another message's text"),
    });
    // Has a length and nothing else: any attempt to cut or join it gives something else than this object.
    const rope: string = JSON.parse('{"length": 1000000000}');
    const long = { ...first(writing), text: rope };
    const state = reduce({ ...writing, messages: [forbidden, long] }, delta(1_000_000_000, "x"));
    expect(state.messages[0]).toBe(forbidden);
    expect(state.messages[1]?.text).toBe(rope);
    expect(state.messages[1]?.live).toBe("x");
  });

  it("[RED5] the halves of a pair, in two deltas and two chunks, are one character", () => {
    const shown = after(writing, delta(0, "a\ud83d"), delta(2, "\udd0d"));
    expect(messageText(first(shown))).toBe("a🔍");
    const kept = after(writing, chunk(0, "a\ud83d"), chunk(2, "\udd0d"));
    expect(first(kept).text).toBe("a🔍");
    expect(JSON.parse(JSON.stringify(after(writing, chunk(0, "\ud83d"))))).toEqual(
      after(writing, chunk(0, "\ud83d")),
    );
  });

  it.each(BARRIER_TYPES.map((type) => [type]))("[RED12] %s drops what is live", (type) => {
    const events: Record<(typeof BARRIER_TYPES)[number], NewEvent> = {
      "run.interrupted": interrupted,
      "run.resumed": resumed(1),
      "step.superseded": { type: "step.superseded", payload: { step_id: "other" } },
      "run.completed": { type: "run.completed", payload: {} },
      "run.failed": { type: "run.failed", payload: { code: "x", message: "", retryable: false } },
      "run.cancelled": { type: "run.cancelled", payload: {} },
    };
    const shown = after(writing, chunk(0, "kept"), delta(4, " lost"));
    expect(first(after(shown, events[type]))).toMatchObject({
      text: "kept",
      live: "",
      status: "open",
    });
  });
});
