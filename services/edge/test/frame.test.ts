import { parseCursor } from "@throughline/protocol";
import type { LogMessage } from "@throughline/broker";
import { describe, expect, test } from "vitest";
import { FrameFault, frameMessage, restamped, splitLines } from "../src/fanout/frame.ts";
import { Slab } from "../src/fanout/slab.ts";

function message(lines: string[], over: Partial<LogMessage> = {}): LogMessage {
  return {
    run: "r1",
    streamSeq: 900,
    prev: 0,
    firstSeq: 7,
    lastSeq: 6 + lines.length,
    attempt: 1,
    writer: "w",
    worker: "k",
    epoch: "e",
    cmd: 0,
    barrier: 0,
    settled: 0,
    end: false,
    lane: "e",
    body: Buffer.from(lines.join("\n")),
    ...over,
  };
}

const TAG = { run: "r1", epoch: "e", tag: "tag" };
const text = (frame: Uint8Array): string => Buffer.from(frame).toString("utf8");

describe("framing a message", () => {
  const slab = new Slab(4_096);

  test("[HUB1] each line becomes a frame with its own cursor, bytes otherwise unchanged", () => {
    const lines = [`{"a":{"b":"}"}}`, `{"text":"täxt \\n ☂"}`, `{"n":[{}]}`];
    const { frames } = frameMessage(message(lines), TAG, slab);
    expect(frames.map(text)).toEqual([
      `{"a":{"b":"}"},"cursor":"7-900-tag"}`,
      `{"text":"täxt \\n ☂","cursor":"8-900-tag"}`,
      `{"n":[{}],"cursor":"9-900-tag"}`,
    ]);
    for (const frame of frames) {
      const parsed: unknown = JSON.parse(text(frame));
      expect(parseCursor(Reflect.get(parsed as object, "cursor"))).toMatchObject({ tag: "tag" });
    }
  });

  test("[HUB1] frames cut from one block do not touch each other", () => {
    const small = new Slab(64);
    const frames = Array.from({ length: 50 }, (_, i) =>
      frameMessage(
        message([`{"i":${i}}`], { firstSeq: 1, lastSeq: 1 }),
        { ...TAG, tag: "t" },
        small,
      ),
    ).flatMap((entry) => entry.frames);
    expect(frames.map(text)).toEqual(
      Array.from({ length: 50 }, (_, i) => `{"i":${i},"cursor":"1-900-t"}`),
    );
  });

  test.each([
    ["fewer lines", message([`{"a":1}`], { lastSeq: 8 })],
    ["more lines", message([`{"a":1}`, `{"a":2}`], { lastSeq: 7 })],
    ["more lines than a batch's", message([`{"a":1}`, `{"a":2}`, `{"a":3}`], { lastSeq: 8 })],
    ["an empty line at its end", message([`{"a":1}`, ""], { lastSeq: 7 })],
    ["a line that is no object", message([`[1]`])],
    ["an object without members", message([`{}`])],
    ["nothing", message([""])],
  ])("[HUB2] a message with %s is a fault", (_what, m) => {
    expect(() => frameMessage(m, TAG, slab)).toThrow(FrameFault);
  });

  test("[HUB5] a message sent late carries the cursor it is given", () => {
    const entry = frameMessage(message([`{"a":1}`, `{"b":"x"}`]), TAG, slab);
    expect(restamped(entry, "50-1000-other").map(text)).toEqual([
      `{"a":1,"cursor":"50-1000-other"}`,
      `{"b":"x","cursor":"50-1000-other"}`,
    ]);
  });

  test("[GATE1] ephemeral lines are passed on as they are", () => {
    expect(splitLines(Buffer.from('{"a":1}\n{"b":2}')).map(text)).toEqual(['{"a":1}', '{"b":2}']);
  });
});
