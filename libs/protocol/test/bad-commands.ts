/*
 * Frames that are no command, and what is said of each: the cases of a gateway that strangers write to
 * (C28). Each is [what it is, frame, code, path, message].
 */
import { ID_RULE } from "../src/ids.ts";

export const start = (payload: object, rest: object = {}): object => ({
  type: "run.start",
  id: "cmd_1",
  session_id: "ses_1",
  payload: { agent: "llm", input: null, ...payload },
  ...rest,
});

export const onRun = (type: string, payload?: unknown, rest: object = {}): object => ({
  type,
  id: "cmd_1",
  session_id: "ses_1",
  run_id: "run_1",
  ...(payload === undefined ? {} : { payload }),
  ...rest,
});

export type Row = readonly [
  name: string,
  frame: unknown,
  code: string,
  path: string | undefined,
  message: string,
];

export const malformed: readonly Row[] = [
  ["null", null, "malformed", undefined, "the frame is no JSON object"],
  ["a number", 1, "malformed", undefined, "the frame is no JSON object"],
  ["a text", "run.start", "malformed", undefined, "the frame is no JSON object"],
  ["an array", [start({})], "malformed", undefined, "the frame is no JSON object"],
  ["an empty object", {}, "malformed", "type", "type: is required"],
  ["a type that is no text", { type: 1, id: "a" }, "malformed", "type", "type: must be a string"],
  ["no id", { type: "run.start" }, "malformed", "id", "id: is required"],
  ["a number as id", { type: "run.start", id: 7 }, "malformed", "id", `id: ${ID_RULE}`],
  [
    "an unknown type",
    { type: "run.levitate", id: "a" },
    "unknown_type",
    "type",
    'type: "run.levitate" is no command',
  ],
  [
    "an event's type",
    { type: "run.queued", id: "a" },
    "unknown_type",
    "type",
    'type: "run.queued" is no command',
  ],
  [
    "a name of Object.prototype",
    { type: "constructor", id: "a" },
    "unknown_type",
    "type",
    'type: "constructor" is no command',
  ],
];

export const wrong: readonly Row[] = [
  [
    "no session",
    { type: "run.start", id: "a" },
    "invalid",
    "session_id",
    "session_id: is required",
  ],
  [
    "no run",
    { type: "run.resume", id: "a", session_id: "s" },
    "invalid",
    "run_id",
    "run_id: is required",
  ],
  ["no payload", onRun("input.respond"), "invalid", "payload", "payload: is required"],
  [
    "a text as payload",
    onRun("run.resume", "now"),
    "invalid",
    "payload",
    "payload: must be an object",
  ],
  [
    "an array as payload",
    onRun("run.resume", []),
    "invalid",
    "payload",
    "payload: must be an object",
  ],
  [
    "null as payload",
    onRun("run.resume", null),
    "invalid",
    "payload",
    "payload: must be an object",
  ],
  [
    "null as run_id",
    onRun("run.resume", {}, { run_id: null }),
    "invalid",
    "run_id",
    "run_id: must be a string",
  ],
  [
    "no input",
    { ...start({}), payload: { agent: "llm" } },
    "invalid",
    "payload.input",
    "payload.input: is required",
  ],
  [
    "a field deep inside",
    start({ tools: [{ name: "a" }, { name: 3 }] }),
    "invalid",
    "payload.tools[1].name",
    "payload.tools[1].name: must be a string",
  ],
  [
    "a tool's schema that is none",
    start({ tools: [{ name: "a", input_schema: [] }] }),
    "invalid",
    "payload.tools[0].input_schema",
    "payload.tools[0].input_schema: must be an object",
  ],
  [
    "a temperature out of range",
    start({ options: { temperature: 9 } }),
    "invalid",
    "payload.options.temperature",
    "payload.options.temperature: must be at most 2",
  ],
  [
    "a decision there isn't",
    onRun("approval.respond", { approval_id: "a", decision: "maybe" }),
    "invalid",
    "payload.decision",
    "payload.decision: must be allow or deny",
  ],
  [
    "half a window",
    { type: "subscribe", id: "a", session_id: "s", payload: { window: 1.5 } },
    "invalid",
    "payload.window",
    "payload.window: must be a whole number",
  ],
  [
    "a window of none",
    { type: "subscribe", id: "a", session_id: "s", payload: { window: 0 } },
    "invalid",
    "payload.window",
    "payload.window: must be at least 1",
  ],
  [
    "a cursor that is none",
    { type: "subscribe", id: "a", session_id: "s", payload: { cursor: "latest" } },
    "invalid",
    "payload.cursor",
    "payload.cursor: is no cursor",
  ],
  [
    "an impossible cursor",
    { type: "subscribe", id: "a", session_id: "s", payload: { cursor: "9007199254740993-1-a" } },
    "invalid",
    "payload.cursor",
    "payload.cursor: is no cursor",
  ],
  [
    "a role there isn't",
    { type: "session.create", id: "a", payload: { members: { bob: "king" } } },
    "invalid",
    "payload.members.bob",
    "payload.members.bob: must be viewer or operator or owner",
  ],
  [
    "a member without a name",
    { type: "session.create", id: "a", payload: { members: { "": "owner" } } },
    "invalid",
    'payload.members[""]',
    'payload.members[""]: is no allowed name',
  ],
  [
    "a long reason",
    onRun("run.cancel", { reason: "x".repeat(1_001) }),
    "invalid",
    "payload.reason",
    "payload.reason: must be at most 1000 characters long",
  ],
  [
    "too many tools",
    start({ tools: Array.from({ length: 257 }, () => ({ name: "a" })) }),
    "invalid",
    "payload.tools",
    "payload.tools: has more than 256",
  ],
];

export const harmful: readonly Row[] = [
  [
    "__proto__ at the top",
    JSON.parse('{"type":"heartbeat","id":"a","__proto__":{"payload":{"ts":1}}}'),
    "invalid",
    "__proto__",
    "__proto__: is no allowed name",
  ],
  [
    "__proto__ in an input",
    start({ input: JSON.parse('{"a":[{"__proto__":{}}]}') }),
    "invalid",
    "payload.input.a[0].__proto__",
    "payload.input.a[0].__proto__: is no allowed name",
  ],
  [
    "half a pair in a text",
    start({ input: { text: "a\ud83d" } }),
    "invalid",
    "payload.input.text",
    "payload.input.text: has half of a surrogate pair",
  ],
  [
    "half a pair in a name",
    start({ input: { "\udd0d": 1 } }),
    "invalid",
    'payload.input["\\udd0d"]',
    'payload.input["\\udd0d"]: has half of a surrogate pair in its name',
  ],
  [
    "the halves in the wrong order",
    start({ input: "\udd0d\ud83d" }),
    "invalid",
    "payload.input",
    "payload.input: has half of a surrogate pair",
  ],
  [
    "a number too large",
    start({ input: JSON.parse("[1e999]") }),
    "invalid",
    "payload.input[0]",
    "payload.input[0]: is no finite number",
  ],
  [
    "what JSON makes something else of",
    start({ input: [new Date(0)] }),
    "invalid",
    "payload.input[0]",
    "payload.input[0]: is no JSON value",
  ],
  [
    "what JSON does not have",
    start({ input: [1n] }),
    "invalid",
    "payload.input[0]",
    "payload.input[0]: is no JSON value",
  ],
  [
    "a run_id in the payload",
    start({ run_id: "r" }),
    "invalid",
    "payload.run_id",
    "payload.run_id: belongs at the top of the frame, beside `type`",
  ],
  [
    "a session_id in the payload",
    onRun("run.resume", { session_id: "s" }),
    "invalid",
    "payload.session_id",
    "payload.session_id: belongs at the top of the frame, beside `type`",
  ],
];

export const eitherOr: readonly Row[] = [
  [
    "a cancel of nothing",
    { type: "run.cancel", id: "a", session_id: "s" },
    "invalid",
    "run_id",
    "run_id: is required, or else payload.start_id; not both",
  ],
  [
    "a cancel of two",
    onRun("run.cancel", { start_id: "b" }),
    "invalid",
    "run_id",
    "run_id: is required, or else payload.start_id; not both",
  ],
  [
    "a report of nothing",
    onRun("tool_result.report", {}),
    "invalid",
    "payload",
    "payload: needs either tool_call_id or results",
  ],
  [
    "a report of one and several",
    onRun("tool_result.report", {
      tool_call_id: "t",
      result: 1,
      results: [{ tool_call_id: "t", result: 1 }],
    }),
    "invalid",
    "payload",
    "payload: needs either tool_call_id or results",
  ],
  [
    "a report without outcome",
    onRun("tool_result.report", { tool_call_id: "t" }),
    "invalid",
    "payload",
    "payload: needs either result or error",
  ],
  [
    "a report with two",
    onRun("tool_result.report", { tool_call_id: "t", result: null, error: { message: "" } }),
    "invalid",
    "payload",
    "payload: needs either result or error",
  ],
  [
    "several, one without outcome",
    onRun("tool_result.report", {
      results: [{ tool_call_id: "t", result: 1 }, { tool_call_id: "u" }],
    }),
    "invalid",
    "payload.results[1]",
    "payload.results[1]: needs either result or error",
  ],
];
