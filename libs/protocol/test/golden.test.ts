import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { readFrame } from "../src/index.ts";
import { commandSchema, controlFrameSchema, decodeCommand, eventSchema } from "../src/schemas.ts";
import { ephemeralEventSchema, durableEventSchema } from "../src/schemas.ts";

type Frame = { type: string } & Record<string, unknown>;
const golden: { events: Frame[]; control: Frame[]; commands: Frame[] } = JSON.parse(
  readFileSync(new URL("golden.json", import.meta.url), "utf8"),
);

const families = [
  {
    name: "events",
    frames: golden.events,
    schema: eventSchema,
    messages: [...durableEventSchema.options, ...ephemeralEventSchema.options],
  },
  {
    name: "control",
    frames: golden.control,
    schema: controlFrameSchema,
    messages: controlFrameSchema.options,
  },
  {
    name: "commands",
    frames: golden.commands,
    schema: commandSchema,
    messages: commandSchema.options,
  },
];

/** Every field of a JSON Schema, as a path; those of open-ended values end where the schema does. */
function fieldsOf(schema: z.core.JSONSchema._JSONSchema, path = ""): string[] {
  if (typeof schema !== "object") return [];
  const here = path === "" ? [] : [path];
  if (schema.items !== undefined && !Array.isArray(schema.items)) {
    return [...here, ...fieldsOf(schema.items, `${path}[]`)];
  }
  const members = Object.entries(schema.properties ?? {});
  return [...here, ...members.flatMap(([name, member]) => fieldsOf(member, `${path}.${name}`))];
}

function has(value: unknown, path: string[]): boolean {
  const [head, ...rest] = path;
  if (head === undefined) return true;
  if (head === "[]") return Array.isArray(value) && value.some((item) => has(item, rest));
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, head)) return false;
  return has(Reflect.get(value, head), rest);
}

describe.each(families)("golden $name", ({ frames, schema, messages }) => {
  it.each(frames.map((frame) => [frame.type, frame] as const))(
    "[WIRE1] %s parses, and is the same when written again",
    (_, frame) => {
      const parsed = schema.parse(frame);
      expect(parsed).toStrictEqual(frame);
      expect(schema.parse(JSON.parse(JSON.stringify(parsed)))).toStrictEqual(frame);
    },
  );

  it("[WIRE1] has every type, and no other", () => {
    const types = messages.map((message) => z.string().parse(message.shape.type.value));
    expect([...new Set(frames.map((frame) => frame.type))].sort()).toEqual(types.sort());
  });

  it.each(messages.map((message) => [message.shape.type.value, message] as const))(
    "[WIRE2] %s shows every field that it may have",
    (type, message) => {
      const examples = frames.filter((frame) => frame.type === type);
      const fields = fieldsOf(z.toJSONSchema(message, { io: "input", unrepresentable: "any" }));
      // The envelopes are the same for all events: any event may show their optional fields.
      const own = fields.filter(
        (field) => field.startsWith(".payload") || !("payload" in message.shape),
      );
      const missing = own.filter((field) => {
        const path = field.slice(1).replaceAll("[]", ".[]").split(".");
        return !examples.some((example) => has(example, path));
      });
      expect(missing).toEqual([]);
    },
  );
});

describe("golden frames", () => {
  it("[WIRE2] events show every field of the envelopes", () => {
    for (const union of [durableEventSchema, ephemeralEventSchema]) {
      const shapes = union.options.map((option) => option.shape);
      for (const field of new Set(shapes.flatMap((shape) => Object.keys(shape)))) {
        const types = new Set(shapes.map((shape) => shape.type.value as string));
        const shown = golden.events.some((event) => types.has(event.type) && field in event);
        expect(shown, field).toBe(true);
      }
    }
  });

  it("[DEC1] every command is decoded to itself", () => {
    for (const command of golden.commands) {
      expect(decodeCommand(JSON.stringify(command))).toStrictEqual({ ok: true, command });
    }
  });

  it("[FRM1] a client sorts every event and control frame", () => {
    for (const event of golden.events) {
      const kind = "seq" in event ? "durable" : "ephemeral";
      expect(readFrame(event)).toStrictEqual({ kind, event });
    }
    for (const frame of golden.control)
      expect(readFrame(frame)).toStrictEqual({ kind: "control", frame });
  });

  it("[WIRE3] halves of a surrogate pair pass through", () => {
    const chunk = golden.events.find((event) => event.type === "model.chunk");
    const text = JSON.stringify(chunk);
    expect(text).toContain("\\ud83d");
    expect(JSON.stringify(JSON.parse(Buffer.from(text, "utf8").toString("utf8")))).toBe(text);
  });
});
