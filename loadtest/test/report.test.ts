import { expect, test } from "vitest";
import { parseOptions } from "../bench/options.ts";
import { markdown, type Report } from "../bench/report/markdown.ts";

test("all parts run when none is named, and in their own order when some are", () => {
  const all = parseOptions([]);
  const some = parseOptions([
    "storage",
    "latency",
    "--quick",
    "--seconds",
    "1.5",
    "--fan-outs",
    "1,5",
  ]);
  if (all.kind !== "run" || some.kind !== "run") throw new Error("not understood");
  expect(all.options.parts).toEqual([
    "latency",
    "commands",
    "takeover",
    "fan-out",
    "memory",
    "storage",
  ]);
  expect(some.options.parts).toEqual(["latency", "storage"]);
  expect(some.options.sizes).toMatchObject({ windowMs: 1_500, fanOuts: [1, 5], rounds: 1 });
});

test.each([
  [["speed"], 'no part "speed"'],
  [["--seconds", "soon"], "--seconds wants a number"],
  [["--rounds", "1.5"], "--rounds wants a whole number"],
  [["--fan-outs", "1,,2"], "--fan-outs wants a number"],
  [["--loud"], "--loud"],
])("%j is refused with its reason and the help", (args, reason) => {
  const parsed = parseOptions(args);
  if (parsed.kind !== "wrong") throw new Error("taken");
  expect(parsed.text).toContain(reason);
  expect(parsed.text).toContain("npm run bench");
});

test("the report says where, of what and how it was measured, and whether the aims were met", () => {
  const aim = { what: "speed", aim: "over 1", measured: "2" };
  const report: Report = {
    date: "2026-01-02T03:04:05.000Z",
    command: "npm run bench -- storage",
    commit: "abc",
    machine: {
      cpu: "Z80",
      cores: 1,
      memoryGiB: 1,
      kernel: "CP/M",
      node: "20",
      nats: "2.15.2",
      load: 0.5,
    },
    seconds: 12.4,
    quick: false,
    parts: [
      {
        title: "Part",
        how: ["by hand"],
        table: { columns: ["a", "b"], rows: [["1", "2"]] },
        aims: [
          { ...aim, met: true },
          { ...aim, met: false },
          { ...aim, met: undefined },
        ],
        notes: ["note"],
        raw: {},
      },
    ],
  };
  const text = markdown(report);
  for (const part of ["2026-01-02", "Z80", "abc", "`npm run bench -- storage` (12 s)", "by hand"]) {
    expect(text).toContain(part);
  }
  expect(text).toContain("| a | b |\n| --- | --- |\n| 1 | 2 |");
  expect(text.match(/\| (met|\*\*missed\*\*|not measured) \|/g)).toHaveLength(3);
  expect(markdown({ ...report, quick: true })).not.toContain("over 1");
});
