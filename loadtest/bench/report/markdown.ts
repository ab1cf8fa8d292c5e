/** The report as Markdown. Pure. */
import type { Machine } from "./machine.ts";
import type { Aim, PartReport, Table } from "./part.ts";

export interface Report {
  /** ISO 8601. */
  readonly date: string;
  readonly command: string;
  readonly commit: string;
  readonly machine: Machine;
  readonly seconds: number;
  /** Made by a quick look, too short to hold anything against the aims. */
  readonly quick: boolean;
  readonly parts: readonly PartReport[];
}

export function markdown(report: Report): string {
  const { machine } = report;
  return [
    `# Bench, ${report.date}`,
    "",
    `* Machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB; ${machine.kernel}; Node ${machine.node}; nats-server ${machine.nats}; load before: ${machine.load}`,
    `* Commit: ${report.commit}`,
    `* Command: \`${report.command}\` (${Math.round(report.seconds)} s)`,
    "* Everything on loopback, each role in a process of its own. Absolute numbers are this machine's at that hour; compare the two sides of a ratio only.",
    ...(report.quick ? ["* A quick look, too short to conclude from."] : []),
    "",
    ...report.parts.flatMap((part) => [
      `## ${part.title}`,
      "",
      ...part.how.map((line) => `* ${line}`),
      "",
      ...tableLines(part.table),
      "",
      ...(report.quick ? [] : aimLines(part.aims)),
      ...part.notes.flatMap((note) => [note, ""]),
    ]),
  ].join("\n");
}

export function tableLines({ columns, rows }: Table): string[] {
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  return [row(columns), row(columns.map(() => "---")), ...rows.map(row)];
}

function aimLines(aims: readonly Aim[]): string[] {
  if (aims.length === 0) return [];
  const rows = aims.map(({ what, aim, measured, met }) => [
    what,
    aim,
    measured,
    met === undefined ? "not measured" : met ? "met" : "**missed**",
  ]);
  return [...tableLines({ columns: ["aim", "wanted", "measured", ""], rows }), ""];
}
