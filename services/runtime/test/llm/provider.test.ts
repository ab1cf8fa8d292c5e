/** The client against a server that speaks the real wire, over real HTTP. */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { seededRandom } from "@throughline/testkit";
import { AgentError } from "@throughline/worker";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Piece } from "../../src/chat-stream/assemble.ts";
import { openProvider, type Provider } from "../../src/llm/provider.ts";
import { realRecordings } from "../recordings.ts";
import { type Answer, CUT, HANG, inPieces, type LlmServer, startLlmServer } from "./server.ts";
import { answering, calls, DONE, finish, says, sse, thinks, usage } from "./wire.ts";

const KEY = "sk-very-secret";
let server: LlmServer;
let provider: Provider;

beforeAll(async () => {
  server = await startLlmServer();
  provider = openProvider({ baseUrl: server.url, apiKey: KEY, idleMs: 10_000 });
});
afterEach(() => server.reset());
afterAll(() => server.close());

async function all(
  from: Provider = provider,
  signal: AbortSignal = new AbortController().signal,
): Promise<Piece[]> {
  const pieces: Piece[] = [];
  for await (const piece of from.ask({ model: "m", messages: [], stream: true }, signal))
    pieces.push(piece);
  return pieces;
}

async function failure(from: Provider = provider): Promise<AgentError> {
  try {
    const pieces = await all(from);
    throw new Error(`an answer: ${JSON.stringify(pieces)}`);
  } catch (error) {
    if (error instanceof AgentError) return error;
    throw error;
  }
}

const textOf = (pieces: readonly Piece[], channel: "text" | "reasoning" = "text"): string =>
  pieces
    .map((piece) => (piece.kind === "text" && piece.channel === channel ? piece.text : ""))
    .join("");
const finishOf = (pieces: readonly Piece[]): string[] =>
  pieces.flatMap((piece) => (piece.kind === "finish" ? [piece.reason] : []));
const callsOf = (pieces: readonly Piece[]): unknown[] =>
  pieces.flatMap((piece) =>
    piece.kind === "tool_call" ? [[piece.id, piece.name, piece.source]] : [],
  );

const spoken = [thinks("Hm 🤔. "), says("Grüße "), says("🏮!"), finish(), usage()];

describe("a provider's answer", () => {
  it.each([
    ["LF", "\n"],
    ["CRLF", "\r\n"],
  ])("[LLW1] is the same wherever the network cuts it, with %s", async (_, end) => {
    const body = `: keep-alive${end}${end}${sse(spoken, end)}data: [DONE]${end}${end}`;
    server.will(
      body,
      ...[1, 2, 3, 5, 7, 11].map((size): Answer => ({ parts: inPieces(body, size) })),
    );
    const expected = await all();
    expect(textOf(expected)).toBe("Grüße 🏮!");
    expect(textOf(expected, "reasoning")).toBe("Hm 🤔. ");
    expect(finishOf(expected)).toEqual(["stop"]);
    expect(expected.at(-1)).toEqual({
      kind: "usage",
      model: "m-1",
      usage: { input_tokens: 7, output_tokens: 3 },
    });
    for (let i = 0; i < 6; i++) expect(await all()).toEqual(expected);
  });

  it("[LLW1] is the same however chance cuts it", async () => {
    const random = seededRandom();
    const bytes = Buffer.from(sse(spoken) + DONE);
    for (let i = 0; i < 20; i++) {
      const parts: Uint8Array[] = [];
      for (let at = 0; at < bytes.length;) {
        const size = random.between(1, 90);
        parts.push(bytes.subarray(at, at + size));
        at += size;
      }
      server.will({ parts });
      expect(textOf(await all())).toBe("Grüße 🏮!");
    }
  });

  it("[LLW2] has its tool calls put together from pieces that alternate, empty lists among them", async () => {
    server.will(
      sse([
        calls(),
        calls({ index: 0, id: "a", name: "weath", args: "" }),
        calls({ index: 0, name: "er", args: '{"at"' }),
        calls({ index: 1, id: "b", name: "time", args: "{" }),
        calls({ index: 0, args: ': "Oslo"}' }, { index: 1, args: "}" }),
        calls(),
        finish("tool_calls"),
      ]) + DONE,
    );
    const pieces = await all();
    expect(callsOf(pieces)).toEqual([
      ["a", "weather", '{"at": "Oslo"}'],
      ["b", "time", "{}"],
    ]);
    expect(finishOf(pieces)).toEqual(["tool_calls"]);
  });

  it("[LLW2] has calls told apart by their ids where the provider numbers them wrongly", async () => {
    server.will(
      sse([
        calls(
          { index: 0, id: "a", name: "x", args: "{}" },
          { index: 0, id: "b", name: "y", args: "{}" },
        ),
        finish("tool_calls"),
      ]) + DONE,
      sse([
        calls({ id: "a", name: "x", args: "{}" }),
        calls({ id: "b", name: "y", args: "{}" }),
        finish(),
      ]),
    );
    const both = [
      ["a", "x", "{}"],
      ["b", "y", "{}"],
    ];
    expect(callsOf(await all())).toEqual(both);
    expect(callsOf(await all())).toEqual(both);
  });

  it.each<[string, string]>([
    ["without [DONE]", sse([says("all"), finish(), usage()])],
    ["without usage", sse([says("all"), finish()]) + DONE],
    ["without a finish reason, but with [DONE]", sse([says("all")]) + DONE],
    ["whose last line is not ended", sse([says("all")]) + "data: [DONE]"],
    ["whose finish is not ended by an empty line", sse([says("all"), finish()]).trimEnd()],
    ["with usage on every chunk", sse([usage(1, 1), says("all"), usage(2, 2), finish()]) + DONE],
    [
      "with an error behind its finish",
      sse([says("all"), finish(), { error: { message: "late" } }]) + DONE,
    ],
    [
      "with what is no JSON behind its finish",
      `${sse([says("all"), finish()])}data: {not json\n\n`,
    ],
    [
      "with odd usage",
      sse([says("all"), finish(), { choices: [], usage: { prompt_tokens: null } }]) + DONE,
    ],
    [
      "where the model refuses",
      sse([{ choices: [{ delta: { refusal: "all" } }] }, finish()]) + DONE,
    ],
  ])("[LLW3] is whole %s", async (_, body) => {
    server.will(body);
    const pieces = await all();
    expect(textOf(pieces)).toBe("all");
    expect(finishOf(pieces)).toEqual(["stop"]);
    expect(pieces.filter((piece) => piece.kind === "usage").length).toBeLessThanOrEqual(1);
  });

  it("[LLW3] is whole when the connection breaks after its finish, or stays open without a word", async () => {
    server.will(
      { parts: [sse([says("all"), finish()]), CUT] },
      { parts: [sse([says("all"), finish()]), HANG] },
    );
    expect(finishOf(await all())).toEqual(["stop"]);
    const patient = openProvider({ baseUrl: server.url, apiKey: KEY, idleMs: 200 });
    expect(finishOf(await all(patient))).toEqual(["stop"]);
  });

  it.each<[string, Answer]>([
    ["the connection breaks", { parts: [sse([says("ha")]), CUT] }],
    ["the connection breaks within a line", { parts: [sse([says("ha")]), 'data: {"choi', CUT] }],
    ["the body just ends", { parts: [sse([says("ha")])] }],
    ["the body ends within a line", { parts: [sse([says("ha")]), 'data: {"choi'] }],
    ["the body is empty", { parts: [] }],
  ])("[LLW3] is cut when %s: stream_cut, which may be tried again", async (_, answer) => {
    server.will(answer);
    expect(await failure()).toMatchObject({ code: "stream_cut", retryable: true });
  });

  it.each<[string, unknown, string, boolean]>([
    ["of the server", { message: "boom", type: "server_error" }, "provider_unavailable", true],
    ["of overload", { message: "busy", type: "overloaded_error" }, "provider_unavailable", true],
    ["with a status", { message: "slow down", code: 429 }, "rate_limited", true],
    ["of a rate limit", { type: "rate_limit_exceeded" }, "rate_limited", true],
    [
      "of the request",
      { message: "bad", type: "invalid_request_error" },
      "provider_refused",
      false,
    ],
    ["of length", { message: "long", code: "context_length_exceeded" }, "context_too_long", false],
    ["of money", { type: "insufficient_quota" }, "provider_quota", false],
    ["that is a text", "boom", "provider_unavailable", true],
  ])("[LLW4] ends with an error object %s", async (_, error, code, retryable) => {
    server.will(sse([says("ha"), { error }, says("ha")]) + DONE);
    expect(await failure()).toMatchObject({ code, retryable });
  });

  it("[LLW4] ends with an event of the name error", async () => {
    server.will(`${sse([says("ha")])}event: error\ndata: {"message":"boom","type":"x"}\n\n`);
    expect(await failure()).toMatchObject({ code: "provider_unavailable", retryable: true });
  });

  it.each<[string, string, RegExp]>([
    ["is not JSON", "data: hello\n\n", /not JSON/],
    ["is no chunk", 'data: {"choices": 5}\n\n', /choices/],
  ])("[LLW4] fails for good where a chunk %s", async (_, body, message) => {
    server.will(body);
    const error = await failure();
    expect(error).toMatchObject({ code: "provider_protocol", retryable: false });
    expect(error.message).toMatch(message);
  });

  it.each<[string, Answer]>([
    [
      "JSON without a stream",
      { headers: { "Content-Type": "application/json" }, parts: ['{"choices":[]}'] },
    ],
    ["a page", { headers: { "Content-Type": "text/html" }, parts: ["<html>"] }],
  ])("[LLW4] fails for good where it is %s", async (_, answer) => {
    server.will(answer);
    expect(await failure()).toMatchObject({ code: "provider_protocol", retryable: false });
  });

  it.each(realRecordings())("[LLW9] is read as real providers send it: %s", async (file) => {
    const chunks = readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line !== "");
    const expected = chunks
      .map((line) => JSON.parse(line) as { choices: { delta: Record<string, string | null> }[] })
      .map((one) => one.choices[0]?.delta["content"] ?? "")
      .join("");
    const body = `${chunks.map((line) => `data: ${line}\n\n`).join("")}data: [DONE]\n\n`;
    server.will({ parts: inPieces(body, 1_003) });
    const pieces = await all();
    expect(textOf(pieces), basename(file)).toBe(expected);
    expect(pieces.some((piece) => piece.kind === "usage")).toBe(true);
    if (file.includes("tool-call"))
      expect(callsOf(pieces)).toEqual([
        [expect.stringMatching(/^call_/), "weather", '{"location": "San Francisco"}'],
      ]);
  });
});

describe("a provider's refusal", () => {
  const json = { "Content-Type": "application/json" };
  const body = (error: unknown): string => JSON.stringify({ error });

  it.each<[number, unknown, string, boolean]>([
    [400, { message: "max_tokens is too large" }, "provider_refused", false],
    [400, { message: "long", code: "context_length_exceeded" }, "context_too_long", false],
    [401, { message: `Incorrect API key: ${KEY}` }, "provider_unauthorized", false],
    [402, { message: "pay" }, "provider_quota", false],
    [403, {}, "provider_unauthorized", false],
    [404, { message: "no such model" }, "provider_refused", false],
    [408, {}, "provider_unavailable", true],
    [429, { message: "slow down" }, "rate_limited", true],
    [429, { message: "pay", code: "insufficient_quota" }, "provider_quota", false],
    [500, {}, "provider_unavailable", true],
    [503, {}, "provider_unavailable", true],
    [529, {}, "provider_unavailable", true],
  ])("[LLW5] with %i %j is %s", async (status, error, code, retryable) => {
    server.will({ status, headers: json, parts: [body(error)] });
    const told = await failure();
    expect(told).toMatchObject({ code, retryable });
    expect(told.message).toContain(`HTTP ${status}`);
    expect(told.message).not.toContain(KEY);
  });

  it("[LLW5] says what is wrong with a request, without the key, and nothing of a provider's own trouble", async () => {
    server.will(
      { status: 400, headers: json, parts: [body({ message: `bad temperature (${KEY})` })] },
      { status: 500, headers: json, parts: [body({ message: "stack trace at internal host" })] },
      { status: 502, headers: { "Content-Type": "text/html" }, parts: ["<html>nginx</html>"] },
      { status: 302, headers: { Location: "http://127.0.0.1:1/elsewhere" }, parts: [] },
    );
    expect((await failure()).message).toBe(
      "the model provider refuses the request (HTTP 400): bad temperature ([key])",
    );
    expect((await failure()).message).not.toContain("stack");
    expect((await failure()).message).not.toContain("nginx");
    expect(await failure()).toMatchObject({ code: "provider_refused", retryable: false });
    expect(server.asked).toHaveLength(4);
  });

  it.each<[number, Record<string, string>, number | undefined]>([
    [429, { "Retry-After": "2" }, 2_000],
    [503, { "Retry-After": "1" }, 1_000],
    [429, { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "150ms" }, 150],
    [429, {}, undefined],
    [400, { "Retry-After": "2" }, undefined],
  ])("[LLW6] with %i %j asks to wait %s ms", async (status, headers, expected) => {
    server.will({ status, headers: { ...json, ...headers }, parts: [body({})] });
    expect((await failure()).retryAfterMs).toBe(expected);
  });

  it("[LLW6] that asks to wait for hours is not waited for", async () => {
    server.will({ status: 429, headers: { ...json, "Retry-After": "7200" }, parts: [body({})] });
    const error = await failure();
    expect(error).toMatchObject({ code: "rate_limited", retryable: false });
    expect(error.message).toContain("120 minutes");
  });

  it("[LLW5] of a connection is provider_unreachable, and may be tried again", async () => {
    const gone = await startLlmServer();
    await gone.close();
    const nowhere = openProvider({ baseUrl: gone.url, apiKey: KEY, idleMs: 5_000 });
    const error = await failure(nowhere);
    expect(error).toMatchObject({ code: "provider_unreachable", retryable: true });
    expect(error.message).toContain("ECONNREFUSED");
    expect(error.message).not.toContain("127.0.0.1");
  });
});

describe("a request", () => {
  it("[LLW7] is given up when the provider says nothing for too long, before its answer and within", async () => {
    const hasty = openProvider({ baseUrl: server.url, apiKey: KEY, idleMs: 150 });
    const never = new Promise(() => undefined);
    server.will({ parts: [sse([says("ha")]), HANG] }, () => ({ parts: [{ until: never }] }));
    for (let i = 0; i < 2; i++)
      expect(await failure(hasty)).toMatchObject({ code: "provider_silent", retryable: true });
  });

  it("[LLW7] bears a slow reader, and a provider that sends comments while its model thinks", async () => {
    const hasty = openProvider({ baseUrl: server.url, apiKey: KEY, idleMs: 250 });
    server.will(sse([says("a"), says("b"), finish()]) + DONE);
    let text = "";
    for await (const piece of hasty.ask({}, new AbortController().signal)) {
      for (let i = 0; i < 4; i++) await delay(80);
      if (piece.kind === "text") text += piece.text;
    }
    expect(text).toBe("ab");
    server.will({ parts: [...every(60, ": thinking\n\n", 8), sse([says("ab"), finish()])] });
    expect(textOf(await all(hasty))).toBe("ab");
  });

  it("[LLW7] ends with the run's signal, before the answer and within, and the provider sees it go", async () => {
    for (const parts of [[HANG], [sse([says("ha")]), HANG]] as const) {
      server.reset();
      server.will({ parts });
      const stop = new AbortController();
      const reason = new Error("interrupted");
      const running = all(provider, stop.signal);
      await expect.poll(() => server.asked.length).toBe(1);
      stop.abort(reason);
      await expect(running).rejects.toBe(reason);
      await expect.poll(() => server.asked[0]?.left).toBe(true);
    }
    await expect(all(provider, AbortSignal.abort(new Error("before")))).rejects.toThrow("before");
  });

  it("[LLW7] ends when nobody reads on", async () => {
    server.will({ parts: [sse([says("ha")]), HANG] });
    for await (const piece of provider.ask({}, new AbortController().signal)) {
      expect(piece.kind).toBe("text");
      break;
    }
    await expect.poll(() => server.asked[0]?.left).toBe(true);
  });

  it("[LLW8] goes to the endpoint with the key, or without one", async () => {
    server.will(answering("hi"), answering("hi"));
    await all(openProvider({ baseUrl: `${server.url}/`, apiKey: KEY, idleMs: 5_000 }));
    await all(openProvider({ baseUrl: server.url, apiKey: undefined, idleMs: 5_000 }));
    expect(server.asked.map(({ path }) => path)).toEqual([
      "/v1/chat/completions",
      "/v1/chat/completions",
    ]);
    expect(server.asked.map(({ headers }) => headers.authorization)).toEqual([
      `Bearer ${KEY}`,
      undefined,
    ]);
  });
});

/** The same part again and again, `ms` apart, from its sending on. */
function every(ms: number, part: string, times: number): Answer["parts"] {
  const pause = {
    get until() {
      return delay(ms);
    },
  };
  return Array.from({ length: times }, () => [pause, part]).flat();
}
