import { describe, expect, it } from "vitest";
import { openSse, type SseEvent } from "../../src/llm/sse.ts";
import { inPieces } from "./server.ts";

function read(pieces: readonly Uint8Array[]): SseEvent[] {
  const sse = openSse();
  const events = pieces.flatMap((piece) => sse.push(piece));
  const last = sse.end();
  return last === undefined ? events : [...events, last];
}

const data = (...texts: readonly string[]): SseEvent[] =>
  texts.map((text) => ({ event: undefined, data: text }));

describe("server-sent events", () => {
  const body = 'data: {"a":"🏮é"}\n\n: a comment\n\ndata: two\ndata: lines\n\nid: 7\ndata:\n\n';
  const expected = data('{"a":"🏮é"}', "two\nlines", "");

  it.each(["\n", "\r\n", "\r"])("[LLW1] come out whole wherever they are cut, with %j", (end) => {
    const text = body.replaceAll("\n", end);
    for (let size = 1; size <= 12; size++) expect(read(inPieces(text, size))).toEqual(expected);
  });

  it("[LLW1] passes over a byte order mark, and gives the event's name", () => {
    expect(read(inPieces("\uFEFFevent: error\ndata: x\n\ndata: y\n\n", 1))).toEqual([
      { event: "error", data: "x" },
      ...data("y"),
    ]);
  });

  it("[LLW1] gives what stands at the end of a body that no empty line closes", () => {
    expect(read(inPieces("data: x\n\ndata: [DONE]", 3))).toEqual(data("x", "[DONE]"));
    expect(read(inPieces("data: x\n\ndata: y\n", 3))).toEqual(data("x", "y"));
    expect(read(inPieces("", 3))).toEqual([]);
  });

  it("[LLW1] takes no event that does not end", () => {
    const sse = openSse();
    const mebibyte = Buffer.from("x".repeat(1024 * 1024));
    sse.push(Buffer.from("data: "));
    expect(() => {
      for (let i = 0; i < 10; i++) sse.push(mebibyte);
    }).toThrow(RangeError);
    const lines = openSse();
    expect(() => {
      for (let i = 0; i < 10; i++) lines.push(Buffer.from(`data: ${String(mebibyte)}\n`));
    }).toThrow(RangeError);
  });
});
