/*
 * The wire as one JSON document: the JSON Schema of every message, and a hash over all of them. Wording
 * (descriptions) is not part of the wire and is left out.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import {
  commandSchema,
  controlFrameSchema,
  durableEventSchema,
  ephemeralEventSchema,
  runStateSchema,
} from "../src/schemas.ts";
import { PROTOCOL_VERSION } from "../src/version.ts";

const familySchema = z.record(z.string(), z.unknown());

export const wireSchema = z.object({
  protocol: z.int(),
  /** SHA-256 over all that follows. */
  hash: z.string(),
  events: familySchema,
  control: familySchema,
  commands: familySchema,
  state: familySchema,
});

export type Wire = z.infer<typeof wireSchema>;
type Family = z.infer<typeof familySchema>;

/** The wire as the code has it now. */
export function currentWire(): Wire {
  const messages = {
    events: family([...durableEventSchema.options, ...ephemeralEventSchema.options]),
    control: family(controlFrameSchema.options),
    commands: family(commandSchema.options),
    state: { RunState: jsonSchemaOf(runStateSchema) },
  };
  const hash = createHash("sha256").update(JSON.stringify(messages)).digest("hex");
  return { protocol: PROTOCOL_VERSION, hash, ...messages };
}

/** Names of the messages that differ, e.g. `events run.queued`. */
export function changedMessages(before: Partial<Wire>, after: Wire): string[] {
  return (["events", "control", "commands", "state"] as const).flatMap((kind) => {
    const [old, now] = [before[kind] ?? {}, after[kind]];
    const names = new Set([...Object.keys(old), ...Object.keys(now)]);
    const isChanged = (name: string): boolean =>
      JSON.stringify(old[name]) !== JSON.stringify(now[name]);
    return [...names].filter(isChanged).map((name) => `${kind} ${name}`);
  });
}

type Message = z.ZodType & { readonly shape: { readonly type: z.ZodLiteral } };

function family(messages: readonly Message[]): Family {
  const entries = messages.map(
    (message) => [String(message.shape.type.value), jsonSchemaOf(message)] as const,
  );
  return Object.fromEntries(entries);
}

function jsonSchemaOf(schema: z.ZodType): unknown {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return withoutWording(rest);
}

function withoutWording(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withoutWording);
  if (typeof node !== "object" || node === null) return node;
  const members = Object.entries(node).filter(
    // A property may itself be called "description": then its value is a schema, not a text.
    ([name, value]) => name !== "description" || typeof value !== "string",
  );
  return Object.fromEntries(members.map(([name, value]) => [name, withoutWording(value)]));
}
