/** The agent in a real worker, with a provider on this machine. */
import { type Broker, openBroker, type RunRef } from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { createWorker, defineTool, type Worker } from "@throughline/worker";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { llm, type LlmOptions, type LlmOutput } from "../../src/index.ts";
import { GO_ON } from "../../src/llm/conversation.ts";
import { openProvider } from "../../src/llm/provider.ts";
import {
  cancelRun,
  ended,
  logOf,
  sendCommand,
  shownText,
  startRun,
  stateOf,
  stateWhen,
} from "../follow.ts";
import { CUT, HANG, type LlmServer, startLlmServer } from "./server.ts";
import { answering, calling, calls, DONE, finish, says, sse, thinks, usage } from "./wire.ts";

const ACK_WAIT_MS = 1_000;
const BACKOFF_MS = 20;

let nats: NatsServer;
let server: LlmServer;
let broker: Broker;
let worker: Worker;

beforeAll(async () => {
  nats = await startNats();
  server = await startLlmServer();
});
beforeEach(async () => {
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
  worker = await startWorker(broker);
});
afterEach(async () => {
  server.reset();
  await worker.stop();
  await broker.close();
});
afterAll(async () => {
  await server.close();
  await nats.dispose();
});

const double = defineTool({
  name: "math.double",
  input_schema: { type: "object", properties: { n: { type: "number" } } },
  run: (args) => ({ doubled: 2 * Number(Reflect.get(Object(args), "n")) }),
});

async function startWorker(on: Broker, over: Partial<LlmOptions> = {}): Promise<Worker> {
  const agent = llm({
    provider: openProvider({ baseUrl: server.url, apiKey: "sk-1", idleMs: 60_000 }),
    defaultModel: "m-1",
    tools: [double],
    maxRounds: 4,
    retries: 2,
    backoffMs: BACKOFF_MS,
    ...over,
  });
  const started = createWorker({
    broker: on,
    agents: [agent],
    ackWaitMs: ACK_WAIT_MS,
    graceMs: 500,
  });
  await started.start();
  return started;
}

const messagesOf = (n: number): readonly Record<string, unknown>[] =>
  server.asked[n]?.body.messages ?? [];

const shown = (state: RunState): unknown[] =>
  state.messages.map((one) => [one.channel, one.text, one.finish_reason]);

const openText = (state: RunState): string =>
  state.messages.find((message) => message.status !== "completed")?.text ?? "";

const client = (...names: string[]): { tools: { name: string; description: string }[] } => ({
  tools: names.map((name) => ({ name, description: `${name}, at the client` })),
});

async function report(ref: RunRef, state: RunState, name: string, result: unknown): Promise<void> {
  const call = state.tool_calls.find((one) => one.name === name && one.status === "pending");
  if (call === undefined) throw new Error(`no open call of ${name}`);
  await sendCommand(broker, ref, {
    type: "tool_result.report",
    id: `report_${call.tool_call_id}`,
    payload: { tool_call_id: call.tool_call_id, result },
  });
}

describe("llm", () => {
  it("[LLM1][LLM2] shows reasoning and text as they come, each on its channel, and tells the usage", async () => {
    let goOn = (): void => undefined;
    const until = new Promise<void>((resolve) => (goOn = resolve));
    server.will({
      parts: [
        sse([thinks("Hm. "), thinks("Yes."), says("Good "), says("mor")]),
        { until },
        sse([says("ning 🏮"), finish(), usage(11, 5)]),
        DONE,
      ],
    });
    const ref = await startRun(broker, "llm", "hello");
    await stateWhen(broker, ref, (state) => openText(state) === "Good mor");
    goOn();
    const { state } = await ended(broker, ref);
    expect(shown(state)).toEqual([
      ["reasoning", "Hm. Yes.", "stop"],
      ["text", "Good morning 🏮", "stop"],
    ]);
    expect(state.usage.models).toEqual({ "m-1": { input_tokens: 11, output_tokens: 5 } });
    expect(state.output).toEqual({
      text: "Good morning 🏮",
      model: "m-1",
      finish_reason: "stop",
      rounds: 1,
      tool_calls: 0,
      transcript: [
        { role: "user", content: "hello" },
        { role: "assistant", content: "Good morning 🏮" },
      ],
    } satisfies LlmOutput);
    expect(messagesOf(0)).toEqual([{ role: "user", content: "hello" }]);
  });

  it("[LLM1] refuses an input that is no prompt", async () => {
    const { state } = await ended(broker, await startRun(broker, "llm", { question: "?" }));
    expect(state.error).toMatchObject({ code: "invalid_input" });
    expect(server.asked).toHaveLength(0);
  });

  it("[LLM3] runs client's and worker's tools at once, and tells the model each result in the order of its calls", async () => {
    server.will(
      sse([
        thinks("Three things."),
        calls(
          { index: 0, id: "a", name: "weather", args: '{"at":"Oslo"}' },
          { index: 1, id: "b", name: "math_double", args: '{"n":21}' },
          { index: 2, id: "c", name: "time", args: "" },
        ),
        finish("tool_calls"),
      ]) + DONE,
      answering("It is 9 and cold."),
    );
    const ref = await startRun(broker, "llm", { prompt: "now?" }, client("weather", "time"));
    const open = await stateWhen(
      broker,
      ref,
      ({ tool_calls: all }) =>
        all.filter((call) => call.status === "pending").length === 2 &&
        all.some((call) => call.status === "completed"),
    );
    expect(open.status).toBe("waiting_tools");
    expect(new Set(open.tool_calls.map((call) => call.batch_id)).size).toBe(1);
    await report(ref, open, "time", "9:00");
    await report(ref, open, "weather", { celsius: -5 });
    const { state } = await ended(broker, ref);
    expect(state.output).toMatchObject({ text: "It is 9 and cold.", rounds: 2, tool_calls: 3 });
    const sent = server.asked[0]?.body["tools"] as { function: { name: string } }[];
    expect(sent.map((tool) => tool.function.name).sort()).toEqual([
      "math_double",
      "time",
      "weather",
    ]);
    expect(messagesOf(1).slice(1)).toEqual([
      {
        role: "assistant",
        content: null,
        reasoning_content: "Three things.",
        tool_calls: [
          ["a", "weather", '{"at":"Oslo"}'],
          ["b", "math_double", '{"n":21}'],
          ["c", "time", "{}"],
        ].map(([id, name, args]) => ({
          id,
          type: "function",
          function: { name, arguments: args },
        })),
      },
      { role: "tool", tool_call_id: "a", content: '{"celsius":-5}' },
      { role: "tool", tool_call_id: "b", content: '{"doubled":42}' },
      { role: "tool", tool_call_id: "c", content: "9:00" },
    ]);
  });

  it("[LLM3] tells the model of unknown tools and broken arguments, and calls nothing with those", async () => {
    server.will(
      sse([
        calls(
          { index: 0, id: "x", name: "nothing", args: "{}" },
          { index: 1, id: "x", name: "math_double", args: '{"n": 2' },
        ),
        finish("length"),
      ]) + DONE,
      answering("Sorry."),
    );
    const { state } = await ended(broker, await startRun(broker, "llm", "go"));
    expect(state.status).toBe("completed");
    expect(messagesOf(1).slice(2)).toEqual([
      {
        role: "tool",
        tool_call_id: "x",
        content: expect.stringMatching(/^Error \(unknown_tool\)/),
      },
      {
        role: "tool",
        tool_call_id: "call_2",
        content: expect.stringMatching(/^Error \(invalid_input\): .*JSON/),
      },
    ]);
    expect(state.tool_calls.find((call) => call.name === "math.double")).toMatchObject({
      args: '{"n": 2',
      result: { error: { code: "invalid_input" } },
    });
  });

  it("[LLM4] fails when it comes to no end", async () => {
    for (let i = 0; i < 5; i++)
      server.will(calling({ id: `c${i}`, name: "math_double", args: { n: i } }));
    const { state } = await ended(broker, await startRun(broker, "llm", "go"));
    expect(state.error).toMatchObject({ code: "too_many_rounds", retryable: false });
    expect(server.asked).toHaveLength(4);
  });

  it("[LLM5] does a cut answer again; what it had shown stays, closed, and is told to nobody again", async () => {
    server.will(
      { parts: [sse([says("Once "), says("upon")]), CUT] },
      answering("Once upon a time."),
      answering("Yes."),
    );
    const ref = await startRun(broker, "llm", "tell");
    const { state, events } = await ended(broker, ref);
    expect(shown(state)).toEqual([
      ["text", "Once upon", "error"],
      ["text", "Once upon a time.", "stop"],
    ]);
    expect(
      events.flatMap((event) => (event.type === "step.failed" ? [event.payload.error] : [])),
    ).toEqual([expect.objectContaining({ code: "stream_cut", retryable: true })]);
    expect(state.steps.map((step) => step.status)).toEqual(["failed", "completed"]);
    expect(messagesOf(1)).toEqual(messagesOf(0));
    // Nor to the session's next run.
    await ended(broker, await startRun(broker, "llm", "more?", { session: ref.session }));
    expect(messagesOf(2)).toEqual([
      { role: "user", content: "tell" },
      { role: "assistant", content: "Once upon a time." },
      { role: "user", content: "more?" },
    ]);
  });

  it("[LLM5] waits as long as the provider asks, and gives up after its tries", async () => {
    const limited = (): { status: number; headers: Record<string, string>; parts: string[] } => ({
      status: 429,
      headers: { "Content-Type": "application/json", "Retry-After": "0.6" },
      parts: ['{"error":{"message":"slow down"}}'],
    });
    server.will(limited(), limited(), limited());
    const { state, events } = await ended(broker, await startRun(broker, "llm", "go"));
    expect(state.error).toMatchObject({ code: "rate_limited", retryable: true });
    const tries = events.filter((event) => event.type === "step.started").map((event) => event.ts);
    expect(tries).toHaveLength(3);
    expect((tries[2] ?? 0) - (tries[0] ?? 0)).toBeGreaterThanOrEqual(1_200);
  });

  it("[LLM5] does not try again what has no chance", async () => {
    server.will({ status: 401, parts: [] });
    const { state } = await ended(broker, await startRun(broker, "llm", "go"));
    expect(state.error).toMatchObject({ code: "provider_unauthorized", retryable: false });
    expect(server.asked).toHaveLength(1);
  });

  it("[LLM6] remembers the session's first run in its second, and not another session's", async () => {
    server.will(
      calling({ id: "a", name: "math_double", args: { n: 1 } }),
      answering("Hello Ann."),
      answering("You are Ann."),
      answering("No idea."),
    );
    const first = await startRun(broker, "llm", "I am Ann.");
    await ended(broker, first);
    await ended(broker, await startRun(broker, "llm", "Who am I?", { session: first.session }));
    await ended(broker, await startRun(broker, "llm", "Who am I?"));
    expect(messagesOf(2)).toEqual([
      { role: "user", content: "I am Ann." },
      { role: "assistant", content: "Hello Ann." },
      { role: "user", content: "Who am I?" },
    ]);
    expect(messagesOf(3)).toEqual([{ role: "user", content: "Who am I?" }]);
  });

  it("[LLM6] has a run that it repeats not in its memory, and keeps the answers that were whole", async () => {
    server.will(
      calling({ id: "a", name: "math_double", args: { n: 2 } }),
      { status: 400, parts: [] },
      answering("4."),
    );
    const first = await startRun(broker, "llm", "2 + 2?");
    expect((await ended(broker, first)).state.status).toBe("failed");
    const over = { session: first.session, retry_of: first.run };
    const { state } = await ended(broker, await startRun(broker, "llm", "2 + 2?", over));
    expect(state.output).toMatchObject({ text: "4.", rounds: 2 });
    expect(server.asked).toHaveLength(3);
    expect(messagesOf(2)).toEqual(messagesOf(1));
    expect(messagesOf(2).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
  });

  it("[LLM7][LLM8][LLM9] interrupted, it ends the request; told to go on, it knows what it had said", async () => {
    server.will(
      { parts: [sse([says("One, two, "), says("three")]), HANG] },
      answering("In Norwegian: en, to."),
      answering("Thanks."),
    );
    const ref = await startRun(broker, "llm", "count");
    await stateWhen(broker, ref, (state) => openText(state) === "One, two, three");
    await sendCommand(broker, ref, { type: "run.interrupt", id: "stop", payload: {} });
    await stateWhen(broker, ref, (state) => state.status === "interrupted");
    await eventually(() => server.asked[0]?.left);
    await sendCommand(broker, ref, {
      type: "run.continue",
      id: "go",
      payload: { content: "In Norwegian!", options: { temperature: 1 } },
    });
    const { state } = await ended(broker, ref);
    expect(shown(state)).toEqual([
      ["text", "One, two, three", "interrupted"],
      ["text", "In Norwegian: en, to.", "stop"],
    ]);
    expect(messagesOf(1)).toEqual([
      { role: "user", content: "count" },
      { role: "assistant", content: "One, two, three" },
      { role: "user", content: "In Norwegian!" },
    ]);
    expect(server.asked.map(({ body }) => body["temperature"])).toEqual([undefined, 1]);
  });

  it("[LLM7] resumed without a word, it goes on where it stopped", async () => {
    server.will({ parts: [sse([says("One, two")]), HANG] }, answering(", three."));
    const ref = await startRun(broker, "llm", "count");
    await stateWhen(broker, ref, (state) => openText(state) === "One, two");
    await sendCommand(broker, ref, { type: "run.interrupt", id: "stop", payload: {} });
    await stateWhen(broker, ref, (state) => state.status === "interrupted");
    await sendCommand(broker, ref, { type: "run.resume", id: "go", payload: {} });
    expect(shownText((await ended(broker, ref)).state)).toBe("One, two, three.");
    expect(messagesOf(1).slice(1)).toEqual([
      { role: "assistant", content: "One, two" },
      { role: "user", content: GO_ON },
    ]);
  });

  it("[LLM7] interrupted without its context, it answers anew", async () => {
    server.will({ parts: [sse([says("One, two")]), HANG] }, answering("Eins."));
    const ref = await startRun(broker, "llm", "count");
    await stateWhen(broker, ref, (state) => openText(state) === "One, two");
    await sendCommand(broker, ref, {
      type: "run.interrupt",
      id: "stop",
      payload: { preserve_context: false },
    });
    await stateWhen(broker, ref, (state) => state.status === "interrupted");
    await sendCommand(broker, ref, { type: "run.resume", id: "go", payload: {} });
    expect(shownText((await ended(broker, ref)).state)).toBe("Eins.");
    expect(messagesOf(1)).toEqual([{ role: "user", content: "count" }]);
  });

  it("[LLM3][LLM7] interrupted while a tool is out, it tells the model so, and what it is told", async () => {
    server.will(calling({ id: "a", name: "weather", args: {} }), answering("Never mind."));
    const ref = await startRun(broker, "llm", "weather?", client("weather"));
    await stateWhen(broker, ref, (state) => state.status === "waiting_tools");
    await sendCommand(broker, ref, { type: "run.interrupt", id: "stop", payload: {} });
    await stateWhen(broker, ref, (state) => state.status === "interrupted");
    await sendCommand(broker, ref, {
      type: "run.continue",
      id: "go",
      payload: { content: "Leave it." },
    });
    const { state } = await ended(broker, ref);
    expect(state.output).toMatchObject({ text: "Never mind.", rounds: 2 });
    expect(state.tool_calls).toHaveLength(1);
    expect(messagesOf(1).slice(2)).toEqual([
      {
        role: "tool",
        tool_call_id: "a",
        content: expect.stringMatching(/^Error \(interrupted\)/),
      },
      { role: "user", content: "Leave it." },
    ]);
  });

  it("[LLM8] gives an instruction that comes during the last answer an answer of its own", async () => {
    let goOn = (): void => undefined;
    const until = new Promise<void>((resolve) => (goOn = resolve));
    server.will(
      { parts: [sse([says("Red.")]), { until }, sse([finish()]), DONE] },
      answering("Blue."),
    );
    const ref = await startRun(broker, "llm", "a colour");
    await stateWhen(broker, ref, (state) => openText(state) === "Red.");
    await sendCommand(broker, ref, {
      type: "run.continue",
      id: "more",
      payload: { content: { text: "another" } },
    });
    await stateWhen(broker, ref, (state) => state.inbox.length === 1);
    goOn();
    const { state } = await ended(broker, ref);
    expect(shownText(state)).toBe("Red.Blue.");
    expect(messagesOf(1)).toEqual([
      { role: "user", content: "a colour" },
      { role: "assistant", content: "Red." },
      { role: "user", content: "another" },
    ]);
  });

  it("[LLM9] cancelled, it ends the request, with nothing left open", async () => {
    server.will({ parts: [sse([says("ha")]), HANG] });
    const ref = await startRun(broker, "llm", "go");
    await stateWhen(broker, ref, (state) => openText(state) === "ha");
    await cancelRun(broker, ref);
    const { state } = await ended(broker, ref);
    expect(state.status).toBe("cancelled");
    expect(state.messages.map((message) => message.status)).toEqual(["completed"]);
    await eventually(() => server.asked[0]?.left);
  });

  it("[LLM10] gives the provider the run's options", async () => {
    server.will(answering("ok"));
    const options = {
      model: "m-2",
      system: "Be brief.",
      temperature: 0.5,
      max_tokens: 9,
      locale: "de",
    };
    await ended(broker, await startRun(broker, "llm", "go", { options }));
    expect(server.asked[0]?.body).toMatchObject({ model: "m-2", temperature: 0.5, max_tokens: 9 });
    expect(server.asked[0]?.body).not.toHaveProperty("locale");
    expect(messagesOf(0)[0]).toEqual({ role: "system", content: "Be brief." });
    const wrong = await startRun(broker, "llm", "go", { options: { top_p: "all" } });
    expect((await ended(broker, wrong)).state.error).toMatchObject({
      code: "invalid_options",
      message: expect.stringMatching(/^options\.top_p/),
    });
  });

  it("[LLM8] a wrong option of an instruction ends no run: those before it hold on", async () => {
    server.will({ parts: [sse([says("One")]), HANG] }, answering("Two."));
    const ref = await startRun(broker, "llm", "count", { options: { temperature: 1 } });
    await stateWhen(broker, ref, (state) => openText(state) === "One");
    await sendCommand(broker, ref, { type: "run.interrupt", id: "stop", payload: {} });
    await stateWhen(broker, ref, (state) => state.status === "interrupted");
    await sendCommand(broker, ref, {
      type: "run.continue",
      id: "go",
      payload: { content: "on", options: { top_p: "x", temperature: 0 } },
    });
    const { state } = await ended(broker, ref);
    expect(state.status).toBe("completed");
    expect(server.asked.map(({ body }) => body["temperature"])).toEqual([1, 1]);
    expect(server.asked[1]?.body).not.toHaveProperty("top_p");
  });

  it("[LLM11][C26] taken over within an answer, it asks for it again, and nothing is shown twice", async () => {
    server.will({ parts: [sse([says("Half of ")]), HANG] }, answering("All of it."));
    const ref = await startRun(broker, "llm", "tell");
    await stateWhen(broker, ref, (state) => openText(state) === "Half of ");
    await broker.close();
    await worker.stop();
    broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
    worker = await startWorker(broker);
    const { state } = await ended(broker, ref);
    expect(shownText(state)).toBe("All of it.");
    expect(state.steps.map((step) => step.status)).toEqual(["superseded", "completed"]);
    expect(messagesOf(1)).toEqual(messagesOf(0));
  });

  it("[LLM11][C18] taken over while a tool is out, it goes on without asking the model again", async () => {
    server.will(calling({ id: "a", name: "weather", args: {} }), answering("Cold."));
    const ref = await startRun(broker, "llm", "weather?", client("weather"));
    await stateWhen(broker, ref, (state) => state.status === "waiting_tools");
    // As a process dies: the worker's connection is gone.
    await broker.close();
    await worker.stop();
    broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
    worker = await startWorker(broker);
    const open = await stateWhen(broker, ref, (state) => state.attempt === 2);
    await report(ref, open, "weather", "-5");
    const { state } = await ended(broker, ref);
    expect(state.output).toMatchObject({ text: "Cold.", rounds: 2 });
    expect(server.asked).toHaveLength(2);
    expect(messagesOf(1).at(-1)).toEqual({ role: "tool", tool_call_id: "a", content: "-5" });
    const events = await logOf(broker, ref);
    expect(stateOf(ref, events).steps.map((step) => step.status)).toEqual([
      "completed",
      "completed",
    ]);
  });
});
