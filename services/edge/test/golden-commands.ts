import { readFileSync } from "node:fs";

export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [name: string]: Json };
export type JsonObject = { readonly [name: string]: Json };
export type Path = readonly (string | number)[];

const file = new URL("../../../libs/protocol/test/golden.json", import.meta.url);
const golden: { readonly commands: readonly (JsonObject & { readonly type: string })[] } =
  JSON.parse(readFileSync(file, "utf8"));

/** One good command of each type and shape: what mutations begin with. */
export const GOOD_COMMANDS: typeof golden.commands = golden.commands;

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The paths to all members and items, outer ones first. */
export function pathsOf(value: Json, at: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [];
  const entries: [string | number, Json][] = isObject(value)
    ? Object.entries(value)
    : [...value].map((item, i) => [i, item]);
  return entries.flatMap(([name, member]) => {
    const path = [...at, name];
    return [path, ...pathsOf(member, path)];
  });
}

export function valueAt(value: Json, path: Path): Json | undefined {
  let found: Json | undefined = value;
  for (const part of path) {
    if (typeof part === "number") found = Array.isArray(found) ? found[part] : undefined;
    else found = isObject(found) ? found[part] : undefined;
  }
  return found;
}

/** JSON text of the value with `replacement`, itself JSON text, in place of what is at the path. */
export function textWith(value: Json, path: Path, replacement: string): string {
  const [first, ...rest] = path;
  if (first === undefined) return replacement;
  const member = (name: string | number, inner: Json): string =>
    name === first ? textWith(inner, rest, replacement) : JSON.stringify(inner);
  if (isObject(value)) {
    const members = Object.entries(value).map(
      ([name, inner]) => `${JSON.stringify(name)}:${member(name, inner)}`,
    );
    return `{${members.join(",")}}`;
  }
  if (Array.isArray(value)) return `[${value.map((item: Json, i) => member(i, item)).join(",")}]`;
  return JSON.stringify(value);
}
