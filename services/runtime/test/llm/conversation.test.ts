import type { PastRun } from "@throughline/worker";
import { describe, expect, it } from "vitest";
import {
  answer,
  before,
  type ChatMessage,
  GO_ON,
  remembered,
  saidIn,
  toolResult,
  type Turn,
} from "../../src/llm/conversation.ts";
import { inputSchema, promptOf } from "../../src/llm/input.ts";
import { nameTools, readOptions, requestBody } from "../../src/llm/request.ts";

const turn = (more: Partial<Turn>): Turn => ({
  interrupted: [],
  heard: [],
  text: "",
  calls: [],
  finish_reason: "stop",
  model: "m",
  ...more,
});

const past = (more: Partial<PastRun>): PastRun => ({
  run_id: "run_1",
  agent: "llm",
  status: "completed",
  input: { prompt: "hello" },
  output: undefined,
  messages: [],
  ended_at: 1,
  ...more,
});

const said = (text: string, channel = "text"): PastRun["messages"][number] => ({
  role: "assistant",
  channel,
  text,
});

const tool = (name: string, input_schema = {}) =>
  ({ name, description: "", input_schema, executor: "worker" }) as const;

describe("the conversation", () => {
  it("[LLM6] begins with what was asked and answered in the session's earlier runs", () => {
    const messages = remembered([
      past({ messages: [said("thinking", "reasoning"), said("Let me look."), said("Hi!")] }),
      past({ input: "again", status: "failed" }),
      past({ agent: "repo-report", input: { path: "." }, output: { files: 3 } }),
    ]);
    expect(messages).toEqual([
      { role: "user", content: "hello" },
      { role: "assistant", content: "Let me look.\n\nHi!" },
      { role: "user", content: "again" },
      { role: "assistant", content: "[This run ended without an answer: failed.]" },
      { role: "user", content: '{"path":"."}' },
      { role: "assistant", content: '{"files":3}' },
    ]);
  });

  it("[LLM6] has the runs of its own as their outputs tell them", () => {
    const transcript = [
      { role: "user", content: "a colour" },
      { role: "assistant", content: "Red." },
      { role: "user", content: "another" },
      { role: "assistant", content: "Blue." },
    ];
    expect(remembered([past({ output: { transcript }, messages: [said("Gre")] })])).toEqual(
      transcript,
    );
  });

  it("[LLM6] joins answers between which only tools ran: no two stand in a row", () => {
    const call = { id: "c", name: "shell", source: "{}" };
    const run: ChatMessage[] = [
      { role: "user", content: "hello" },
      ...answer(turn({ text: "let me look", calls: [call] })),
      toolResult("c", { ok: true, result: 1 }),
      ...answer(turn({ text: "done" })),
    ];
    const transcript = saidIn(run);
    expect(transcript).toEqual([
      { role: "user", content: "hello" },
      { role: "assistant", content: "let me look\n\ndone" },
    ]);
    // Of a run that was stored before they were joined as well.
    const stored = saidIn(run.slice(0, 2)).concat(saidIn(run.slice(3)));
    expect(remembered([past({ output: { transcript: stored } })])).toEqual(transcript);
  });

  it("[LLM6] keeps the newest where there is too much, whole runs only", () => {
    const long = "x".repeat(50_000);
    const runs = [1, 2, 3, 4].map((n) => past({ input: `q${n}`, messages: [said(long)] }));
    expect(remembered(runs).map(({ content }) => content?.slice(0, 2))).toEqual([
      "q3",
      "xx",
      "q4",
      "xx",
    ]);
  });

  it("[LLM6] cuts a run that is too large by itself, with a mark, and keeps those before it", () => {
    const small = past({ input: "small", messages: [said("Yes.")] });
    const large = [
      past({ input: "long answer", messages: [said("x".repeat(130_000))] }),
      past({ input: "y".repeat(200_000), messages: [said("short answer")] }),
    ];
    for (const run of large) {
      const contents = remembered([small, run]).map(({ content }) => content ?? "");
      expect(contents.slice(0, 2)).toEqual(["small", "Yes."]);
      expect(contents.filter((text) => / characters left out /.test(text))).toHaveLength(1);
      expect(contents.join("").length).toBeLessThanOrEqual(60_000 + "smallYes.".length);
    }
    expect(remembered([small, ...large]).map(({ content }) => content)).toContain("short answer");
    const many = Array.from({ length: 9_000 }, () => ({ role: "user", content: "z".repeat(100) }));
    const bounded = remembered([past({ output: { transcript: many } })]);
    expect(bounded.map(({ content }) => content).join("").length).toBeLessThanOrEqual(60_000);
  });

  it("[LLM7] tells the model what it had said when it was interrupted, and what came then", () => {
    expect(before({ interrupted: ["Once upon"], heard: [{ content: "Shorter!" }] })).toEqual([
      { role: "assistant", content: "Once upon" },
      { role: "user", content: "Shorter!" },
    ]);
    expect(before({ interrupted: ["Once upon"], heard: [] })).toEqual([
      { role: "assistant", content: "Once upon" },
      { role: "user", content: GO_ON },
    ]);
    expect(before({ interrupted: [""], heard: [] })).toEqual([]);
  });

  it("[LLM3] gives calls back as they came, with the reasoning in the field that it came in", () => {
    expect(
      answer(
        turn({
          calls: [{ id: "a", name: "ls", source: "" }],
          reasoning: { field: "reasoning_content", text: "hm" },
        }),
      ),
    ).toEqual([
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "a", type: "function", function: { name: "ls", arguments: "{}" } }],
        reasoning_content: "hm",
      },
    ]);
    expect(answer(turn({ text: "" }))).toEqual([]);
  });

  it("[LLM3] gives the model results and errors, the long ones by both ends", () => {
    expect(toolResult("a", { ok: true, result: { n: 1 } }).content).toBe('{"n":1}');
    expect(toolResult("a", { ok: true, result: "plain" }).content).toBe("plain");
    expect(toolResult("a", { ok: false, error: { code: "denied", message: "no" } }).content).toBe(
      "Error (denied): no",
    );
    const content = toolResult("a", { ok: true, result: `A${"x".repeat(100_000)}Z` }).content ?? "";
    expect(content.length).toBeLessThan(65_000);
    expect(content).toMatch(/^Ax+\n\[… 36002 characters left out …\]\nx+Z$/);
  });

  it("[LLM1] takes a text or a prompt", () => {
    expect(inputSchema.parse("hi")).toEqual({ prompt: "hi" });
    expect(inputSchema.parse({ prompt: "hi" })).toEqual({ prompt: "hi" });
    for (const wrong of ["", " ", {}, { prompt: "" }, { prompt: "a", more: 1 }, null, 5, ["a"]])
      expect(inputSchema.safeParse(wrong).success, JSON.stringify(wrong)).toBe(false);
  });

  it("[LLM8] reads an instruction as text, else as JSON", () => {
    expect([promptOf("a"), promptOf({ text: "b" }), promptOf({ x: 1 }), promptOf(null)]).toEqual([
      "a",
      "b",
      '{"x":1}',
      "null",
    ]);
  });
});

describe("a request's body", () => {
  const ask = (
    options: Record<string, unknown>,
    more: { answered?: boolean; tools?: ReturnType<typeof tool>[] } = {},
  ) => {
    const tools = more.tools ?? [];
    return requestBody({
      options: readOptions(options),
      defaultModel: "default",
      messages: [{ role: "user", content: "hi" }],
      tools,
      names: nameTools(tools),
      answered: more.answered ?? false,
    });
  };

  it("[LLM10] has the options that providers know, the system prompt first, and no others", () => {
    expect(
      ask({ model: "m", system: "Be brief.", temperature: 0, max_tokens: 5, locale: "de" }),
    ).toEqual({
      model: "m",
      temperature: 0,
      max_tokens: 5,
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "hi" },
      ],
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(ask({}).model).toBe("default");
  });

  it("[LLM10] names a wrong option", () => {
    expect(() => readOptions({ temperature: "hot" })).toThrow(
      expect.objectContaining({
        code: "invalid_options",
        message: expect.stringMatching(/^options\.temperature: /),
      }),
    );
  });

  it("[LLM10] forces a tool once only", () => {
    const tools = [tool("ls"), tool("files.read")];
    const choice = (tool_choice: unknown, answered = false): unknown =>
      ask({ tool_choice }, { tools, answered })["tool_choice"];
    expect(choice("required")).toBe("required");
    expect(choice("required", true)).toBe("auto");
    expect(choice("files.read")).toEqual({ type: "function", function: { name: "files_read" } });
    expect(choice({ type: "function", function: { name: "ls" } }, true)).toBe("auto");
    expect(choice("none", true)).toBe("none");
    expect(ask({ tool_choice: "required" })).not.toHaveProperty("tool_choice");
  });

  it("[LLW8] has the tools by names that providers take, and finds the tools by them", () => {
    const names = nameTools([tool("files.read"), tool("files/read"), tool("x".repeat(100))]);
    expect(names.sent("files.read")).toBe("files_read");
    expect(names.sent("files/read")).toBe("files_read_2");
    expect(names.meant("files_read_2")).toBe("files/read");
    expect(names.meant(names.sent("x".repeat(100)))).toBe("x".repeat(100));
    expect(names.meant("made_up")).toBe("made_up");
    expect(ask({}, { tools: [tool("a.b")] })["tools"]).toEqual([
      {
        type: "function",
        function: { name: "a_b", parameters: { type: "object", properties: {} } },
      },
    ]);
  });
});
