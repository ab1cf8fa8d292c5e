/* From anything at all to a command, or to one clear error. Hostile input ends here. */
import type { z } from "zod";
import { isCommandType } from "../command-kinds.ts";
import type { ErrorCode } from "../error-codes.ts";
import { ID_RULE, isId } from "../ids.ts";
import { findJsonProblem, formatPath, quoted, type Path } from "../json-screen.ts";
import { MAX_LISTED } from "../limits.ts";
import { commandSchema, type Command } from "./catalogue.ts";

export interface CommandError {
  readonly ok: false;
  readonly code: Extract<ErrorCode, "malformed" | "unknown_type" | "invalid">;
  /** One line for the developer at the other end. Holds no value from the frame, only names. */
  readonly message: string;
  /** The offending field, e.g. `payload.tools[2].name`; absent where it is the whole frame. */
  readonly path?: string;
  /** The command's id, where it could be read. */
  readonly id?: string;
}

export type ParsedCommand = { readonly ok: true; readonly command: Command } | CommandError;

/** Reads a text frame. */
export function decodeCommand(text: string): ParsedCommand {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message quotes the input, and that may hold a token.
    return { ok: false, code: "malformed", message: "the frame is no JSON" };
  }
  return parseCommand(value);
}

/**
 * Reads a command that came as a value. Unknown fields are left out of the result.
 *
 * `malformed`: no object with a `type` and an `id`. `unknown_type`: as it says. `invalid`: all else.
 */
export function parseCommand(value: unknown): ParsedCommand {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { ok: false, code: "malformed", message: "the frame is no JSON object" };
  }
  const { type, id, payload } = fieldsOf(value);
  const known = isId(id) ? { id } : {};
  if (typeof type !== "string")
    return refuse("malformed", ["type"], missingOr(type, "must be a string"), known);
  if (!isId(id)) return refuse("malformed", ["id"], missingOr(id, ID_RULE), known);

  const json = findJsonProblem(value);
  if (json !== undefined) return refuse("invalid", json.path, json.problem, known);
  if (!isCommandType(type))
    return refuse("unknown_type", ["type"], `${quoted(type)} is no command`, known);

  for (const name of ["session_id", "run_id"]) {
    if (typeof payload === "object" && payload !== null && Object.hasOwn(payload, name)) {
      return refuse(
        "invalid",
        ["payload", name],
        "belongs at the top of the frame, beside `type`",
        known,
      );
    }
  }

  const long = tooMany(payload);
  if (long !== undefined)
    return refuse("invalid", ["payload", long], `has more than ${MAX_LISTED}`, known);

  const parsed = commandSchema.safeParse(value, { error: describe });
  if (parsed.success) return { ok: true, command: parsed.data };
  const issue = parsed.error.issues[0];
  return refuse("invalid", pathOf(issue), issue?.message ?? "is invalid", known);
}

function fieldsOf(value: object): { type: unknown; id: unknown; payload: unknown } {
  const own = (name: string): unknown => Object.getOwnPropertyDescriptor(value, name)?.value;
  return { type: own("type"), id: own("id"), payload: own("payload") };
}

/**
 * Counted before the schema looks at each: it collects an issue for every wrong one, and for the 45,000
 * members that fit in a frame that held up the event loop for a quarter of a second.
 */
function tooMany(payload: unknown): string | undefined {
  if (typeof payload !== "object" || payload === null) return undefined;
  return LISTS.find((name) => {
    const list: unknown = Object.getOwnPropertyDescriptor(payload, name)?.value;
    return typeof list === "object" && list !== null && Object.keys(list).length > MAX_LISTED;
  });
}

/** Fields of payloads that hold a number of things, each of which is checked. */
const LISTS = ["members", "tools", "results", "attachments"] as const;

function missingOr(value: unknown, problem: string): string {
  return value === undefined ? "is required" : problem;
}

function refuse(
  code: CommandError["code"],
  path: Path,
  problem: string,
  known: { id?: string },
): CommandError {
  const place = formatPath(path);
  return { ok: false, code, message: `${place}: ${problem}`, path: place, ...known };
}

function pathOf(issue: z.core.$ZodIssue | undefined): Path {
  return (issue?.path ?? []).map((part) => (typeof part === "symbol" ? String(part) : part));
}

/** Texts for the issues whose own speak of the library rather than of the field. */
function describe(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return missingOr(issue.input, `must be ${EXPECTED[issue.expected] ?? issue.expected}`);
    case "invalid_value":
      return missingOr(issue.input, `must be ${issue.values.map(String).join(" or ")}`);
    case "too_small":
      return `must be at least ${issue.minimum}${UNIT[issue.origin] ?? ""}`;
    case "too_big":
      return `must be at most ${issue.maximum}${UNIT[issue.origin] ?? ""}`;
    case "invalid_key":
      return "is no allowed name";
    default:
      return undefined;
  }
}

const EXPECTED: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  object: "an object",
  record: "an object",
  array: "an array",
};

const UNIT: Readonly<Record<string, string>> = { string: " characters long", array: " items long" };
