import {
  GOOD_COMMANDS,
  isObject,
  type JsonObject,
  pathsOf,
  textWith,
  valueAt,
} from "./golden-commands.ts";

/** What is no id (C28): each would be something else as a NATS subject, a key, a file name or an object's member. */
export const BAD_IDS: readonly string[] = [
  "",
  "a.b",
  ".",
  "*",
  ">",
  "a.*.b",
  "$JS.API.STREAM.LIST",
  "a b",
  "a\u0000",
  "a\r\nPUB x 0",
  "a\tb",
  "../../etc/passwd",
  "a/b",
  "__proto__",
  "é",
  "ｒｕｎ",
  "\u202Erun",
  "a".repeat(65),
];

/** Members of commands that hold an id. */
const ID_FIELDS = new Set([
  "id",
  "session_id",
  "run_id",
  "agent",
  "start_id",
  "step_id",
  "from_step",
  "subscription_id",
  "approval_id",
  "tool_call_id",
  "claim_id",
  "input_id",
  "artifact_id",
]);

export interface BadCommand {
  readonly name: string;
  readonly type: string;
  readonly text: string;
  readonly code: "malformed" | "invalid";
  /** Where it is wrong. */
  readonly field: string | number;
}

function mutated(
  command: JsonObject & { readonly type: string },
  path: readonly (string | number)[],
  replacement: string,
  what: string,
): BadCommand {
  const field = path.at(-1) ?? "";
  const isOwnId = path.length === 1 && field === "id";
  return {
    name: `${command.type} ${path.join(".")}: ${what}`,
    type: command.type,
    text: textWith(command, path, replacement),
    code: isOwnId ? "malformed" : "invalid",
    field,
  };
}

/** Every good command with every id in it replaced by every bad one, and by what is no text. */
export const BAD_ID_COMMANDS: readonly BadCommand[] = GOOD_COMMANDS.flatMap((command) =>
  pathsOf(command)
    .filter((path) => {
      const isId = ID_FIELDS.has(String(path.at(-1)));
      // Schemas and the like are the application's own: `properties.id` would be no id of ours.
      return isId && typeof valueAt(command, path) === "string" && !path.includes("input_schema");
    })
    .flatMap((path) =>
      [...BAD_IDS.map((id) => JSON.stringify(id)), "7", "null", "{}", '["a"]'].map((replacement) =>
        mutated(command, path, replacement, replacement.slice(0, 40)),
      ),
    ),
);

const DEEP = `${"[".repeat(100)}${"]".repeat(100)}`;
const VERY_DEEP = `${"[".repeat(50_000)}${"]".repeat(50_000)}`;

/** In place of a payload's values: what passes JSON.parse and must not travel. */
const POISONS: readonly (readonly [what: string, text: string])[] = [
  ["half of a surrogate pair", '"\\ud800"'],
  ["the other half", '"a\\udc00b"'],
  ["half of a pair as a name", '{"\\udfff":1}'],
  ["a __proto__ member", '{"__proto__":{"polluted":true}}'],
  ["a __proto__ member further down", '{"a":[{"__proto__":1}]}'],
  ["1e999", "1e999"],
  ["100 levels", DEEP],
  ["50,000 levels", VERY_DEEP],
];

/** Every good command with every value of its payload poisoned, and its payload itself. */
export const POISONED_COMMANDS: readonly BadCommand[] = GOOD_COMMANDS.flatMap((command) =>
  pathsOf(command)
    .filter((path) => path[0] === "payload" || path[0] === "note")
    .flatMap((path) => POISONS.map(([what, text]) => mutated(command, path, text, what))),
);

/** Every good command with a payload that is no object. */
export const WRONG_PAYLOADS: readonly BadCommand[] = GOOD_COMMANDS.filter(({ payload }) =>
  isObject(payload),
).flatMap((command) =>
  ["null", "1", '"text"', "true", "[]"].map((text) => mutated(command, ["payload"], text, text)),
);

/** What is no JSON object, as text. */
export const NO_OBJECTS: readonly (readonly [what: string, text: string])[] = [
  ["a brace", "{"],
  ["an open text", '{"type":"run.st'],
  ["two objects", "{}{}"],
  ["a comma too many", '{"type":"heartbeat","id":"h",}'],
  ["single quotes", "{'type':'heartbeat'}"],
  ["a comment", '{"type":"heartbeat"/**/}'],
  ["NaN", "NaN"],
  ["a control character in a text", '{"type":"a\u0001"}'],
  ["a byte order mark", "\ufeff{}"],
  ["an array", "[]"],
  ["a number", "1"],
  ["a text", '"run.start"'],
  ["null", "null"],
  ["500,000 open brackets", "[".repeat(500_000)],
  ["100,000 open objects", '{"a":'.repeat(100_000)],
];
