/* The parts of PROTOCOL.md that come from the code, as Markdown in the formatter's own form. */
import type { z } from "zod";
import { CLOSE_CODES } from "../src/close-codes.ts";
import { COMMAND_KINDS } from "../src/command-kinds.ts";
import { ERROR_CODES } from "../src/error-codes.ts";
import { FAILURE_CODES } from "../src/failure-codes.ts";
import * as limits from "../src/limits.ts";
import {
  commandSchema,
  controlFrameSchema,
  durableEventSchema,
  ephemeralEventSchema,
  runStateSchema,
} from "../src/schemas.ts";
import { TRANSITIONS } from "../src/transitions.ts";
import { SHAPES, STATE_THINGS, fieldsOf, isOptional, typeOf } from "./notation.ts";

type Row = readonly string[];

function table(head: Row, rows: readonly Row[]): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) =>
    Math.max(3, ...lines.map((row) => row[column]?.length ?? 0)),
  );
  const line = (cells: Row): string =>
    `| ${widths.map((width, column) => (cells[column] ?? "").padEnd(width)).join(" | ")} |`;
  const rule = widths.map((width) => "-".repeat(width));
  return [head, rule, ...rows].map(line).join("\n");
}

/** A message with its fields and what it means. Padded columns would make these lines unreadably long. */
function entry(name: string, fields: string, meaning: string): string {
  return `- **\`${name}\`** ${fields === "" ? "–" : fields}<br>${meaning}`;
}

type Event = (typeof durableEventSchema | typeof ephemeralEventSchema)["options"][number];

const events = (options: readonly Event[]): string =>
  options
    .map(({ shape, description }) =>
      entry(shape.type.value, fieldsOf(shape.payload), description ?? ""),
    )
    .join("\n");

const control = (): string =>
  controlFrameSchema.options
    .map((frame) =>
      entry(frame.shape.type.value, fieldsOf(frame, ["type"]), frame.description ?? ""),
    )
    .join("\n");

function commands(): string {
  return commandSchema.options
    .map(({ shape, description }) => {
      const { answer } = COMMAND_KINDS[shape.type.value];
      const answered = answer === "none" ? "No answer." : `Answer: \`${answer}\`.`;
      const payload = fieldsOf(shape.payload);
      return entry(shape.type.value, payload, `${target(shape)}. ${description ?? ""} ${answered}`);
    })
    .join("\n");
}

function target(shape: Readonly<Record<string, z.ZodType>>): string {
  if (shape["session_id"] === undefined) return "To the edge";
  if (shape["run_id"] === undefined) return "To a session";
  return isOptional(shape["run_id"]) ? "To a session or a run" : "To a run";
}

const things = (shapes: ReadonlyMap<string, z.ZodType>): string =>
  [...shapes].map(([name, schema]) => `- _${name}_: ${fieldsOf(schema)}`).join("\n");

const yesNo = (value: boolean): string => (value ? "yes" : "no");

/** Statuses whose columns are the same share one. */
function columns(): { statuses: string[]; row: (typeof TRANSITIONS)["absent"] }[] {
  const known = new Map<string, { statuses: string[]; row: (typeof TRANSITIONS)["absent"] }>();
  for (const [status, row] of Object.entries(TRANSITIONS)) {
    const same = JSON.stringify(row);
    const column = known.get(same) ?? { statuses: [], row };
    column.statuses.push(status);
    known.set(same, column);
  }
  return [...known.values()];
}

const runCommands = Object.keys(TRANSITIONS.absent) as (keyof (typeof TRANSITIONS)["absent"])[];

function transitions(): string {
  return table(
    ["command", ...columns().map(({ statuses }) => statuses.join(", "))],
    runCommands.map((command) => [
      `\`${command}\``,
      ...columns().map(({ row }) => {
        const transition = row[command];
        return "code" in transition ? transition.code : `→ \`${transition.event}\``;
      }),
    ]),
  );
}

function effects(): string {
  const lines = runCommands.flatMap((command) => {
    const same = new Map<string, string[]>();
    for (const { statuses, row } of columns()) {
      const transition = row[command];
      if ("code" in transition) continue;
      const what = `\`${transition.event}\`: ${transition.effect}`;
      same.set(what, [...(same.get(what) ?? []), ...statuses]);
    }
    return [...same].map(
      ([what, statuses]) => `- \`${command}\` (${statuses.join(", ")}) → ${what}`,
    );
  });
  return lines.join("\n");
}

const LIMITS: readonly Row[] = [
  ["a frame, either way", `${limits.MAX_FRAME_BYTES} bytes`],
  ["an event as it is stored", `${limits.MAX_EVENT_BYTES} bytes`],
  [
    "a value that stays in its event; a larger one becomes an _artifact ref_",
    `${limits.MAX_INLINE_BYTES} bytes`,
  ],
  ["nesting of a command, the frame being the first level", `${limits.MAX_DEPTH} levels`],
  ["subscriptions of a connection", `${limits.MAX_SUBSCRIPTIONS}`],
  ["credit windows of a connection, together", `${limits.MAX_WINDOW} events`],
  [
    "frames from a client, pings included",
    `${limits.FRAME_RATE.perSecond} a second, ${limits.FRAME_RATE.burst} at once after a pause`,
  ],
  ["lease of a claim", `${limits.MIN_LEASE_MS} to ${limits.MAX_LEASE_MS} ms`],
  ["silence after which a side sends a heartbeat", `${limits.HEARTBEAT_INTERVAL_MS} ms`],
];

/** Block name → Markdown. */
export function currentBlocks(): ReadonlyMap<string, string> {
  return new Map([
    ["shapes", things(SHAPES)],
    ["durable-events", events(durableEventSchema.options)],
    ["ephemeral-events", events(ephemeralEventSchema.options)],
    ["control-frames", control()],
    ["commands", commands()],
    [
      "run-state",
      table(
        ["field", "type"],
        Object.entries(runStateSchema.shape).map(([name, field]) => [
          `\`${name}${isOptional(field) ? "?" : ""}\``,
          typeOf(field),
        ]),
      ),
    ],
    ["run-state-things", things(STATE_THINGS)],
    ["transitions", transitions()],
    ["effects", effects()],
    [
      "close-codes",
      table(
        ["code", "name", "reconnect", "meaning"],
        CLOSE_CODES.map((row) => [`${row.code}`, `\`${row.name}\``, row.reconnect, row.summary]),
      ),
    ],
    [
      "error-codes",
      table(
        ["code", "HTTP", "retry", "meaning"],
        Object.entries(ERROR_CODES).map(([code, row]) => [
          `\`${code}\``,
          `${row.status}`,
          yesNo(row.retry),
          row.summary,
        ]),
      ),
    ],
    [
      "failure-codes",
      table(
        ["code", "retryable", "meaning"],
        Object.entries(FAILURE_CODES).map(([code, row]) => [
          `\`${code}\``,
          yesNo(row.retryable),
          row.summary,
        ]),
      ),
    ],
    ["limits", table(["limit", "value"], LIMITS)],
  ]);
}

/** The document with each block between its marks. Throws on a block without a place, or a place without a block. */
export function withBlocks(document: string, blocks: ReadonlyMap<string, string>): string {
  const left = new Set(blocks.keys());
  const filled = document.replaceAll(
    /(<!-- generated: ([a-z-]+) -->\n)[\s\S]*?(<!-- end -->)/g,
    (_, start: string, name: string, end: string) => {
      const block = blocks.get(name);
      if (block === undefined) throw new Error(`the document asks for an unknown block: ${name}`);
      left.delete(name);
      return `${start}\n${block}\n\n${end}`;
    },
  );
  if (left.size > 0) throw new Error(`the document has no place for: ${[...left].join(", ")}`);
  return filled;
}
