import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isErrorCode, isId } from "../src/index.ts";
import {
  decodeCommand,
  parseCommand,
  type CommandError,
  type ParsedCommand,
} from "../src/schemas.ts";
import { ID_RULE } from "../src/ids.ts";
import { eitherOr, harmful, malformed, onRun, start, wrong, type Row } from "./bad-commands.ts";
import { seed } from "./seed.ts";

const golden: { commands: object[] } = JSON.parse(
  readFileSync(new URL("golden.json", import.meta.url), "utf8"),
);

function refusal(parsed: ParsedCommand): CommandError {
  if (parsed.ok) expect.unreachable("was taken");
  else return parsed;
  throw new Error("unreachable");
}

function check([, frame, code, path, message]: Row): void {
  const error = refusal(parseCommand(frame));
  expect({ code: error.code, path: error.path, message: error.message }).toEqual({
    code,
    path,
    message,
  });
}

describe("decoding what is no command (C28)", () => {
  it.each(malformed)("[DEC4] %s", (...row) => check(row));
  it.each(wrong)("[DEC2] %s", (...row) => check(row));
  it.each(harmful)("[DEC6] [DEC7] %s", (...row) => check(row));
  it.each(eitherOr)("[DEC9] %s", (...row) => check(row));

  const badIds = [
    "",
    "a b",
    "a.b",
    "a*",
    "a>",
    "a\u0000",
    "ä",
    "a\n",
    "a/b",
    "__proto__",
    "x".repeat(65),
    "💥",
    "../etc",
  ];

  it.each(badIds)("[DEC5] %j is no id, wherever one stands", (bad) => {
    expect(isId(bad)).toBe(false);
    for (const [frame, path] of [
      [onRun("run.resume", {}, { id: bad }), "id"],
      [onRun("run.resume", {}, { session_id: bad }), "session_id"],
      [onRun("run.resume", {}, { run_id: bad }), "run_id"],
      [start({ agent: bad }), "payload.agent"],
      [onRun("step.retry", { step_id: bad }), "payload.step_id"],
      [onRun("tool_call.claim", { tool_call_id: "t", claim_id: bad }), "payload.claim_id"],
      [start({ attachments: [{ artifact_id: bad }] }), "payload.attachments[0].artifact_id"],
    ] as const) {
      const error = refusal(parseCommand(frame));
      expect([error.path, error.message]).toEqual([path, `${path}: ${ID_RULE}`]);
    }
  });

  it("[DEC5] reply_to is a command's id or an event's", () => {
    for (const good of ["cmd_1", "run_1.184"])
      expect(parseCommand(onRun("run.resume", {}, { reply_to: good })).ok).toBe(true);
    for (const bad of ["run_1.0", "run_1.", ".1", "run_1.1.1", "run_1.01", ""]) {
      expect(refusal(parseCommand(onRun("run.resume", {}, { reply_to: bad }))).path).toBe(
        "reply_to",
      );
    }
  });

  it("[DEC6] 64 levels are taken, 65 are not, 100,000 cost nothing", () => {
    const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    const frame = (levels: number): string =>
      `{"type":"run.start","id":"a","session_id":"s","payload":{"agent":"a","input":${nested(levels)}}}`;
    expect(decodeCommand(frame(62)).ok).toBe(true);
    for (const levels of [63, 100_000]) {
      const error = refusal(decodeCommand(frame(levels)));
      expect(error.message).toMatch(
        /^payload\.input(\[0\]){10}…: is nested deeper than 64 levels$/,
      );
    }
  });

  it("[DEC6] pollutes nothing", () => {
    decodeCommand(
      '{"type":"session.create","id":"a","payload":{"members":{"__proto__":"owner"},"options":{"constructor":{"prototype":{"polluted":1}}}}}',
    );
    expect("polluted" in {}).toBe(false);
  });

  it("[DEC2] names the command it refuses, where it can", () => {
    expect(refusal(parseCommand(start({ agent: 1 }))).id).toBe("cmd_1");
    expect(refusal(parseCommand({ id: "cmd_1" })).id).toBe("cmd_1");
    expect(refusal(parseCommand({ type: "x", id: "cmd_1" })).id).toBe("cmd_1");
    expect(refusal(parseCommand({ type: "x", id: "not an id" }))).not.toHaveProperty("id");
  });

  it("[DEC3] shows no value from the frame", () => {
    const secret = "s3cr3t";
    const frames = [
      `{"type":"auth.refresh","id":"a","payload":{"token":"${secret}`,
      `{"type":"auth.refresh","id":"${secret} ","payload":{"token":"t"}}`,
      `{"type":"auth.refresh","id":"a","payload":{"token":{"x":"${secret}"}}}`,
      `{"type":"auth.refresh","id":"a","payload":{"token":"${secret}\\ud83d"}}`,
      `{"type":"approval.respond","id":"a","session_id":"s","run_id":"r","payload":{"approval_id":"a","decision":"${secret}"}}`,
      `{"type":"subscribe","id":"a","session_id":"${secret}.","payload":{"cursor":"${secret}"}}`,
    ];
    for (const frame of frames)
      expect(JSON.stringify(refusal(decodeCommand(frame)))).not.toContain(secret);
  });

  it("[DEC3] cuts and escapes what it does show", () => {
    const long = refusal(parseCommand({ type: "x".repeat(10_000), id: "a" }));
    expect(long.message).toBe(`type: "${"x".repeat(64)}…" is no command`);
    const lines = refusal(parseCommand({ type: "a\nERROR: \u001b[31m", id: "a" }));
    expect(lines.message).toBe('type: "a\\nERROR: \\u001b[31m" is no command');
    const name = refusal(parseCommand(start({ input: { ["\n".repeat(999)]: "\ud83d" } })));
    expect(name.message.length).toBeLessThan(300);
    expect(name.message).not.toContain("\n");
  });
});

describe("decoding commands", () => {
  it("[DEC1] a payload that may be empty may be absent", () => {
    for (const frame of [
      onRun("run.resume"),
      onRun("run.interrupt"),
      onRun("run.cancel"),
      onRun("run.retry"),
    ]) {
      expect(parseCommand(frame)).toEqual({ ok: true, command: { ...frame, payload: {} } });
    }
    expect(parseCommand({ type: "session.create", id: "a" })).toEqual({
      ok: true,
      command: { type: "session.create", id: "a", payload: {} },
    });
  });

  it("[DEC8] unknown fields are left out; an input, and options, are kept whole", () => {
    const frame = start(
      { input: { anything: [1] }, options: { mine: { a: 1 } }, later: 1 },
      { trace: "x", run_id: "ignored" },
    );
    expect(parseCommand(frame)).toEqual({
      ok: true,
      command: start({ input: { anything: [1] }, options: { mine: { a: 1 } } }),
    });
  });

  it("[DEC1] null is a value of its own: as input, as result, as content", () => {
    for (const frame of [
      start({ input: null }),
      onRun("input.respond", { input_id: "i", content: null }),
      onRun("tool_result.report", { tool_call_id: "t", result: null }),
    ]) {
      expect(parseCommand(frame)).toEqual({ ok: true, command: frame });
    }
  });

  it("[DEC2] whatever comes, there is one answer, and it is the same the second time", () => {
    const anything = fc.oneof(
      fc.jsonValue(),
      // Golden commands with something put somewhere: near misses, which plain noise never is.
      fc
        .tuple(
          fc.constantFrom(...golden.commands),
          fc.nat(),
          fc.anything({ withBigInt: true, withDate: true, withMap: true }),
        )
        .map(([frame, place, value]) => withValueAt(frame, place, value)),
    );
    fc.assert(
      fc.property(anything, (frame) => {
        const parsed = parseCommand(frame);
        if (parsed.ok) {
          const again = parseCommand(JSON.parse(JSON.stringify(parsed.command)));
          // As text: JSON reads -0 and writes 0.
          expect(JSON.stringify(again), "[DEC10]").toBe(JSON.stringify(parsed));
        } else {
          expect(isErrorCode(parsed.code)).toBe(true);
          expect(parsed.message).toMatch(/^[^\n]{1,1500}$/);
          if (parsed.id !== undefined) expect(isId(parsed.id)).toBe(true);
        }
      }),
      { seed, numRuns: 3_000 },
    );
  });

  it("[DEC10] what is decoded, written and decoded again is the same", () => {
    for (const frame of golden.commands) {
      const once = decodeCommand(JSON.stringify({ ...frame, unknown: 1 }));
      expect(once).toEqual({ ok: true, command: frame });
    }
  });

  it("[DEC2] any text gets an answer", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.json()), (text) => {
        expect(typeof decodeCommand(text).ok).toBe("boolean");
      }),
      { seed, numRuns: 2_000 },
    );
  });
});

/** A copy with one of its values, the `place`-th in order of appearance, replaced. */
function withValueAt(frame: object, place: number, value: unknown): unknown {
  let count = 0;
  JSON.stringify(frame, (_, member: unknown) => {
    count += 1;
    return member;
  });
  let left = place % count;
  const replaced = (node: unknown): unknown => {
    if (left-- === 0) return value;
    if (Array.isArray(node)) return node.map(replaced);
    if (typeof node !== "object" || node === null) return node;
    return Object.fromEntries(
      Object.entries(node).map(([name, member]) => [name, replaced(member)]),
    );
  };
  return replaced(frame);
}
