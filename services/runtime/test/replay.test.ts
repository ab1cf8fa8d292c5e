import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { type Broker, openBroker } from "@throughline/broker";
import { type NatsServer, removeDir, startNats, tempDir } from "@throughline/testkit";
import { createWorker, type Worker } from "@throughline/worker";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openRoots, replay, type ReplayOutput } from "../src/index.ts";
import { ended, shownText, startRun } from "./follow.ts";
import { RECORDINGS, realRecordings } from "./recordings.ts";

let nats: NatsServer;
let broker: Broker;
let worker: Worker;
let scratch: string;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
  scratch = tempDir("recordings");
  const beside = realRecordings()
    .slice(0, 1)
    .map((file) => dirname(file));
  const roots = await openRoots([RECORDINGS, scratch, ...beside]);
  worker = createWorker({ broker, agents: [replay({ roots })] });
  await worker.start();
});
afterAll(async () => {
  await worker.stop();
  await broker.close();
  await nats.dispose();
  removeDir(scratch);
});

/** What a recording says, read the plain way. */
function told(file: string): { text: string; reasoning: string; chunks: number } {
  const chunks = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as { choices: { delta: Record<string, string | null> }[] });
  const all = (name: string): string => chunks.map((c) => c.choices[0]?.delta[name] ?? "").join("");
  return { text: all("content"), reasoning: all("reasoning_content"), chunks: chunks.length };
}

describe("replay", () => {
  it("[RPL1] plays text and usage", async () => {
    const ref = await startRun(broker, "replay", { file: "text.jsonl", speed: 1000 });
    const { state } = await ended(broker, ref);
    const expected = told(join(RECORDINGS, "text.jsonl"));
    expect(shownText(state)).toBe(expected.text);
    expect(state.messages).toHaveLength(1);
    expect(state.messages[0]?.finish_reason).toBe("stop");
    expect(state.usage.models).toEqual({
      "demo-1": {
        input_tokens: 16,
        output_tokens: 21,
        cached_input_tokens: 4,
        reasoning_tokens: 0,
      },
    });
    expect(state.output).toEqual({
      model: "demo-1",
      finish_reason: "stop",
      chunks: expected.chunks,
      text_length: expected.text.length,
      tool_calls: 0,
    } satisfies ReplayOutput);
  });

  it("[RPL2] plays reasoning on its own channel, then tool calls, which nothing executes", async () => {
    const ref = await startRun(broker, "replay", { file: "tool-call.jsonl", speed: 1000 });
    const { state } = await ended(broker, ref);
    expect(state.messages.map((m) => [m.channel, m.text, m.finish_reason])).toEqual([
      ["reasoning", "The user wants the weather. Two cities.", "stop"],
      ["text", "Let me look.", "tool_calls"],
    ]);
    expect(state.tool_calls.map((t) => [t.name, t.args, t.executor, t.status, t.result])).toEqual([
      ["weather", { location: "San Francisco" }, "worker", "completed", { replayed: true }],
      ["weather", { location: "Oslo" }, "worker", "completed", { replayed: true }],
    ]);
  });

  it("[RPL6] plays 50 chunks a second at speed 1, and faster as asked", async () => {
    const timed = async (speed: number): Promise<number> => {
      const { events } = await ended(
        broker,
        await startRun(broker, "replay", { file: "text.jsonl", speed }),
      );
      const at = (type: string): number => events.find((event) => event.type === type)?.ts ?? NaN;
      return at("run.completed") - at("run.started");
    };
    const { chunks } = told(join(RECORDINGS, "text.jsonl"));
    const plain = await timed(1);
    expect(plain).toBeGreaterThan((chunks - 2) * 20);
    expect(await timed(4)).toBeLessThan(plain / 1.5);
  });

  it.each(realRecordings())("[RPL7] plays what a real provider sent: %s", async (file) => {
    const { state } = await ended(broker, await startRun(broker, "replay", { file, speed: 1000 }));
    const expected = told(file);
    expect(state.status, basename(file)).toBe("completed");
    expect(shownText(state)).toBe(expected.text);
    expect(shownText(state, "reasoning")).toBe(expected.reasoning);
    expect(state.output).toMatchObject({ chunks: expected.chunks });
    expect(state.usage.total.output_tokens).toBeGreaterThan(0);
    if (file.includes("tool-call")) {
      expect(state.tool_calls.map((t) => [t.name, t.args])).toEqual([
        ["weather", { location: "San Francisco" }],
      ]);
    }
  });

  it.each([
    ["no file", {}, "invalid_input", /^file: /],
    ["a speed that is none", { file: "text.jsonl", speed: 0 }, "invalid_input", /^speed: /],
    ["an unknown field", { file: "text.jsonl", loud: true }, "invalid_input", /loud/],
    ["no object", "text.jsonl", "invalid_input", /object/],
    ["a file that is not there", { file: "nothing.jsonl" }, "path_not_found", /nothing/],
    ["a file outside", { file: "/etc/hostname" }, "path_not_allowed", /TL_ALLOWED_ROOTS/],
    ["a folder", { file: "." }, "invalid_recording", /not a file/],
  ])("[RPL5] refuses %s", async (_, input, code, message) => {
    const { state } = await ended(broker, await startRun(broker, "replay", input));
    expect(state.error).toMatchObject({ code, retryable: false });
    expect(state.error?.message).toMatch(message);
  });

  it("[RPL5] refuses pipes that nobody writes to, more than there are file threads, and goes on", async () => {
    const pipes = Array.from({ length: 6 }, (_, i) => join(scratch, `pipe-${i}`));
    for (const pipe of pipes) execFileSync("mkfifo", [pipe]);
    const runs = await Promise.all(pipes.map((file) => startRun(broker, "replay", { file })));
    for (const run of runs) {
      expect((await ended(broker, run)).state.error).toMatchObject({ code: "invalid_recording" });
    }
    const after = await startRun(broker, "replay", { file: "text.jsonl", speed: 1_000 });
    expect((await ended(broker, after)).state.status).toBe("completed");
  });

  it.each([
    ["is empty", "", /no chunk/],
    ["is something else", "hello\n", /line 1 .* not JSON/],
    ["is JSON of another kind", '{"not":"a chunk"}\n', /line 1/],
    [
      "breaks off",
      `${JSON.stringify({ choices: [{ delta: { content: "a" } }] })}\n{"choi`,
      /line 2 .* not JSON/,
    ],
  ])(
    "[RPL5] a recording that %s fails with the reason, with nothing left open",
    async (name, body, message) => {
      const file = join(scratch, `${name.replaceAll(" ", "-")}.jsonl`);
      writeFileSync(file, body);
      const { state } = await ended(
        broker,
        await startRun(broker, "replay", { file, speed: 1000 }),
      );
      expect(state.error).toMatchObject({ code: "invalid_recording" });
      expect(state.error?.message).toMatch(message);
      expect(state.messages.every((m) => m.status === "completed")).toBe(true);
    },
  );
});
