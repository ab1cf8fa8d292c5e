import { describe, expect, test } from "vitest";
import { stamp, stampOf } from "../bench/roles/stamp.ts";
import { clientFrame, FrameReader, OPCODE } from "../bench/websocket/frames.ts";
import { kindOf } from "../bench/websocket/kinds.ts";

/** As a server sends it: not masked. */
function serverFrame(text: string): Buffer {
  const payload = Buffer.from(text);
  const size = payload.byteLength;
  if (size < 126) return Buffer.concat([Buffer.from([0x81, size]), payload]);
  const head = Buffer.alloc(size < 65_536 ? 4 : 10);
  head[0] = 0x81;
  head[1] = size < 65_536 ? 126 : 127;
  if (size < 65_536) head.writeUInt16BE(size, 2);
  else head.writeBigUInt64BE(BigInt(size), 2);
  return Buffer.concat([head, payload]);
}

describe("the frame reader", () => {
  const short = ["{}", "a".repeat(125), "b".repeat(126), ""];
  const long = [...short, "c".repeat(65_535), "d".repeat(65_536), "{}"];

  test.each([
    [1, short],
    [2, short],
    [7, short],
    [130, long],
    [65_540, long],
    [1_000_000, long],
  ])("cuts a stream that comes in pieces of %i bytes, read through one buffer", (size, texts) => {
    const stream = Buffer.concat(texts.map(serverFrame));
    const reader = new FrameReader();
    const shared = Buffer.alloc(size);
    const found: string[] = [];
    for (let at = 0; at < stream.byteLength; at += size) {
      const bytes = stream.copy(shared, 0, at, at + size);
      reader.push(shared.subarray(0, bytes), (opcode, data, start, end) => {
        expect(opcode).toBe(OPCODE.text);
        found.push(data.toString("utf8", start, end));
      });
      shared.fill(0);
    }
    expect(found).toEqual(texts);
  });

  test.each([5, 126, 65_536])("a client's frame of %i bytes is masked and whole", (size) => {
    const payload = Buffer.alloc(size, "p");
    const frame = clientFrame(OPCODE.text, payload);
    const second = frame[1] ?? 0;
    expect(second & 0x80).toBe(0x80);
    const head = size < 126 ? 2 : size < 65_536 ? 4 : 10;
    expect(frame.byteLength).toBe(head + 4 + size);
    expect(frame.subarray(head, head + 4)).toEqual(Buffer.alloc(4));
    expect(frame.subarray(head + 4).equals(payload)).toBe(true);
  });
});

test.each([
  ["custom", "durable"],
  ["model.chunk", "durable"],
  ["model.delta", "delta"],
  ["caught_up", "other"],
  ["command.rejected", "other"],
  ["run.queued", "other"],
  ["message.started", "other"],
  ["heartbeat", "other"],
])("a frame of type %s is counted as %s", (type, kind) => {
  const frame = Buffer.from(`__${JSON.stringify({ type, payload: {} })}`);
  expect(kindOf(frame, 2)).toBe(kind);
});

test("stamps are found in any text, each to the tenth of a microsecond", () => {
  const text = `{"a":"${stamp(123_456.78)} words"}\n{"b":"${stamp(5)}"}`;
  expect(stampOf(text)).toEqual([123_456.8, 5]);
  expect(stampOf("a@b")).toEqual([]);
});
