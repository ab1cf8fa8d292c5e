import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openAssembler, type Piece } from "../src/chat-stream/assemble.ts";
import { parseChunk } from "../src/replay/chunk.ts";
import { RECORDINGS } from "./recordings.ts";

function piecesOf(source: string): Piece[] {
  const assembler = openAssembler();
  const pieces = source.split("\n").flatMap((line, index) => {
    const chunk = parseChunk(line, index + 1);
    return chunk === undefined ? [] : assembler.take(chunk);
  });
  return [...pieces, ...assembler.end()];
}

describe("assembling a recording", () => {
  it("[RPL2] puts tool calls together from pieces that alternate, at the finish", () => {
    const pieces = piecesOf(readFileSync(join(RECORDINGS, "tool-call.jsonl"), "utf8"));
    expect(pieces.slice(-4)).toEqual([
      { kind: "tool_call", id: "call_a", name: "weather", source: '{"location": "San Francisco"}' },
      { kind: "tool_call", id: "call_b", name: "weather", source: '{"location": "Oslo"}' },
      { kind: "finish", reason: "tool_calls" },
      {
        kind: "usage",
        model: "demo-reasoner",
        usage: { input_tokens: 339, output_tokens: 83, reasoning_tokens: 39 },
      },
    ]);
  });

  it("[RPL3] takes usage from the last chunk that has one", () => {
    const usage = (n: number): string =>
      JSON.stringify({
        model: "m",
        choices: [],
        usage: { prompt_tokens: n, completion_tokens: n },
      });
    expect(piecesOf(`${usage(1)}\n${usage(2)}`)).toContainEqual({
      kind: "usage",
      model: "m",
      usage: { input_tokens: 2, output_tokens: 2 },
    });
  });

  it("[RPL4] a recording that was cut off says so, and keeps the calls that it has", () => {
    const call = { index: 0, function: { name: "ls", arguments: '{"at": "/' } };
    const line = JSON.stringify({ model: "m", choices: [{ delta: { tool_calls: [call] } }] });
    expect(piecesOf(line)).toEqual([
      { kind: "tool_call", id: "", name: "ls", source: '{"at": "/' },
      { kind: "finish", reason: "cut_off" },
    ]);
  });

  it("[RPL1] takes the stream as it was on the wire too", () => {
    const line = JSON.stringify({ model: "m", choices: [{ delta: { content: "hi" } }] });
    expect(piecesOf(`: comment\ndata: ${line}\n\ndata: [DONE]\n`)[0]).toEqual({
      kind: "text",
      channel: "text",
      text: "hi",
    });
  });

  it.each([
    ["not JSON", "{", /line 3 .* not JSON/],
    ["another kind of object", '{"choices": 5}', /line 3 .*choices/],
    ["an array", "[]", /line 3/],
  ])("[RPL5] names the line that is %s", (_, line, message) => {
    expect(() => parseChunk(line, 3)).toThrow(message);
    expect(() => parseChunk(line, 3)).toThrow(
      expect.objectContaining({ code: "invalid_recording" }),
    );
  });
});
