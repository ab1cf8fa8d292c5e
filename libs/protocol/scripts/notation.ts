/* How PROTOCOL.md writes a schema down: `id`, `tool[]`, `allow` / `deny`, { `a` id, `b?` any }. */
import { z } from "zod";
import * as fields from "../src/fields.ts";
import { runStateSchema } from "../src/schemas.ts";

const { messages, steps, tool_calls, approvals, inputs, inbox, artifacts } = runStateSchema.shape;

/** What a run's state lists: shapes that have no other name. */
export const STATE_THINGS: ReadonlyMap<string, z.ZodType> = new Map<string, z.ZodType>([
  ["message state", messages.element],
  ["step state", steps.element],
  ["tool call state", tool_calls.element],
  ["approval state", approvals.element],
  ["input state", inputs.element],
  ["inbox item", inbox.element],
  ["artifact state", artifacts.element],
]);

/** Shapes of the events and commands that are used in more than one place. */
export const SHAPES: ReadonlyMap<string, z.ZodType> = new Map<string, z.ZodType>([
  ["artifact ref", fields.artifactRef],
  ["failure", fields.failure],
  ["attachment", fields.attachment],
  ["tool", fields.tool],
  ["options", fields.options],
  ["usage", fields.usage],
]);

const NAMED = new Map<unknown, string>([
  [fields.id, "id"],
  [fields.eventIdField, "event id"],
  [fields.cursor, "cursor"],
  [fields.user, "user"],
  [fields.time, "ms"],
  [fields.json, "any"],
  [fields.toolName, "tool name"],
  [runStateSchema, "run state"],
  ...[...SHAPES, ...STATE_THINGS].map(([name, schema]) => [schema, name] as const),
]);

export function isOptional(schema: unknown): boolean {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault;
}

/** Without what only says that it may be absent. */
function core(schema: unknown): unknown {
  const wrapped = schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault;
  return wrapped ? core(schema.def.innerType) : schema;
}

export function typeOf(given: unknown): string {
  const schema = core(given);
  const name = NAMED.get(schema);
  if (name !== undefined) return name;
  if (schema instanceof z.ZodObject) return `{ ${fieldsOf(schema)} }`;
  if (schema instanceof z.ZodArray) return `${typeOf(schema.element)}[]`;
  if (schema instanceof z.ZodEnum)
    return schema.options.map((option) => `\`${option}\``).join(" / ");
  if (schema instanceof z.ZodRecord) return `map of ${typeOf(schema.valueType)}`;
  if (schema instanceof z.ZodNumber) return schema.isInt ? "count" : "number";
  if (schema instanceof z.ZodString) return "text";
  if (schema instanceof z.ZodBoolean) return "bool";
  if (schema instanceof z.ZodUnknown) return "any";
  throw new Error("PROTOCOL.md has no way to write this schema down");
}

/** `` `agent` id, `input` any, `tools?` tool[] ``, without those in `leftOut`. */
export function fieldsOf(given: unknown, leftOut: readonly string[] = []): string {
  const schema = core(given);
  if (!(schema instanceof z.ZodObject)) throw new Error("not an object");
  return Object.entries(schema.shape)
    .filter(([name]) => !leftOut.includes(name))
    .map(([name, field]) => `\`${name}${isOptional(field) ? "?" : ""}\` ${typeOf(field)}`)
    .join(", ");
}
