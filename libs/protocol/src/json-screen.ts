/*
 * What no schema says, asked of every value from outside before anything else looks at it. Each of
 * these passes JSON.parse and does harm later: a `__proto__` member when the value is copied by plain
 * assignment, a lone surrogate when the text is encoded (it becomes U+FFFD, and the hash of the command
 * no longer fits), deep nesting when recursive code meets it, 1e999 when it comes back as null.
 */
import { MAX_DEPTH } from "./limits.ts";

export type Path = readonly (string | number)[];

export interface JsonProblem {
  readonly path: Path;
  readonly problem: string;
}

/** The first thing in a value that should not travel, or `undefined`. */
export function findJsonProblem(value: unknown): JsonProblem | undefined {
  const path: (string | number)[] = [];
  const problem = screen(value, path);
  return problem === undefined ? undefined : { path, problem };
}

/** Walks in; on a problem it leaves `path` pointing at the place. */
function screen(value: unknown, path: (string | number)[]): string | undefined {
  switch (typeof value) {
    case "string":
      return LONE_SURROGATE.test(value) ? "has half of a surrogate pair" : undefined;
    case "number":
      return Number.isFinite(value) ? undefined : "is no finite number";
    case "boolean":
      return undefined;
    case "object":
      return value === null ? undefined : screenMembers(value, path);
    default:
      return "is no JSON value";
  }
}

function screenMembers(value: object, path: (string | number)[]): string | undefined {
  if (path.length >= MAX_DEPTH) return `is nested deeper than ${MAX_DEPTH} levels`;
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    for (let i = 0; i < items.length; i++) {
      path.push(i);
      const problem = screen(items[i], path);
      if (problem !== undefined) return problem;
      path.pop();
    }
    return undefined;
  }
  if (!isPlain(value)) return "is no JSON value";
  for (const [name, member] of Object.entries(value)) {
    path.push(name);
    if (name === "__proto__") return "is no allowed name";
    const problem = LONE_SURROGATE.test(name)
      ? "has half of a surrogate pair in its name"
      : screen(member, path);
    if (problem !== undefined) return problem;
    path.pop();
  }
  return undefined;
}

/** Made by JSON.parse or a literal: a Date or a Map would come out of JSON as something else. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

// With the u flag a whole pair is one code point, and this property only ever finds halves.
const LONE_SURROGATE = /\p{Surrogate}/u;

const PLAIN = /^[A-Za-z_$][A-Za-z0-9_$-]{0,63}$/;
const MAX_SHOWN = 64;
const MAX_PARTS = 12;

/** `payload.tools[2].name`. Odd names are quoted, long ones and long paths cut: they come from outside and end in logs. */
export function formatPath(path: Path): string {
  let text = "";
  for (const part of path.slice(0, MAX_PARTS)) {
    if (typeof part === "number") text += `[${part}]`;
    else if (PLAIN.test(part)) text += text === "" ? part : `.${part}`;
    else text += `[${quoted(part)}]`;
  }
  return path.length > MAX_PARTS ? `${text}…` : text;
}

/** A text from outside, safe to show: escaped, on one line, at most 64 characters of it. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}
