/** Deliveries per CPU second of one edge, beside a bare uWebSockets `publish` on the same schedule. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Pattern } from "../figures/pace.ts";
import { median, ratioOfMedians } from "../figures/statistics.ts";
import type { Options } from "../options.ts";
import { startRole } from "@throughline/testkit";
import { openInspector } from "../profile/inspector.ts";
import { selfTimes } from "../profile/self-times.ts";
import { tableLines } from "../report/markdown.ts";
import type { Aim, PartReport, Say } from "../report/part.ts";
import type { BareMethods, FrameSizes } from "../roles/bare-server.ts";
import type { Stage, StagedEdge } from "../stage.ts";
import { type Contestant, type Measured, measure } from "./window.ts";

type Lane = "durable" | "delta";
const LANES: readonly Lane[] = ["durable", "delta"];
const DELTAS_PER_CHECKPOINT = 12;
const TOP = 14;

interface Figure {
  readonly lane: Lane;
  readonly fanOut: number;
  readonly runs: number;
  readonly rate: number;
  readonly ours: readonly Measured[];
  readonly bare: readonly Measured[];
  /** Where the edge's time goes, as Markdown. */
  readonly profile: readonly string[];
}

/**
 * Many runs and few events each where the fan-out is low, as with real users; about 40,000
 * deliveries a second at most, which one process of viewers takes with half a core.
 */
function loadOf(fanOut: number): { runs: number; rate: number } {
  return {
    runs: Math.min(200, Math.max(20, Math.floor(2_000 / fanOut))),
    rate: Math.min(3_000, Math.floor(40_000 / fanOut)),
  };
}

function aimOf(fanOut: number): number | undefined {
  if (fanOut <= 2) return 0.6;
  return fanOut >= 100 ? 0.9 : undefined;
}

export async function fanOut(stage: Stage, options: Options, say: Say): Promise<PartReport> {
  const figures: Figure[] = [];
  let build = "";
  for (const viewersEach of options.sizes.fanOuts) {
    const found = await measureFanOut(stage, options, viewersEach, say);
    figures.push(...found.figures);
    build = found.build;
  }
  return {
    title: "Deliveries per CPU second of one edge",
    how: [
      "Edge: events by real run writers (fenced appends, file storage, one replica), one process of publishers, one of viewers. `durable`: every event stored, its cursor spliced in. `delta`: the ephemeral lane, with a stored checkpoint after every 12 deltas of a run.",
      `Bare: ${build} in a process of its own publishes ready-made frames of the same sizes on the same schedule to the same number of topics and sockets, while the same writers append as much to runs that nobody watches, so that both have the same company on the machine.`,
      `Edge and bare take turns; ${options.sizes.rounds} windows of ${options.sizes.windowMs / 1000} s each; medians, and the ratio of the medians. CPU is the server process's, of all threads. A window in which a driver used more than 90 % of its core, a frame was missing or late, or the server did not get a core when it was woken, does not count.`,
    ],
    table: {
      columns: [
        "lane",
        "fan-out",
        "runs",
        "events/s",
        "frame B",
        "edge, per CPU s",
        "bare, per CPU s",
        "edge / bare",
        "edge µs a delivery",
        "events a wake-up",
        "windows that count",
      ],
      rows: figures.map(rowOf),
    },
    aims: figures.flatMap(aimsOf),
    notes: figures.flatMap((figure) => [...faultNotes(figure), ...figure.profile]),
    raw: { build, figures },
  };
}

async function measureFanOut(
  stage: Stage,
  options: Options,
  viewersEach: number,
  say: Say,
): Promise<{ figures: Figure[]; build: string }> {
  const { publisher, viewers } = stage;
  const { runs, rate } = loadOf(viewersEach);
  say(`fan-out ${viewersEach}: ${runs * viewersEach} viewers connect to each server`);
  const edge = await stage.edge();
  const bare = startRole<BareMethods>(new URL("../roles/bare-server.js", import.meta.url), "bare");
  try {
    const { port, build } = await bare.ask("listen", {});
    const refs = stage.runs(runs);
    await publisher.ask("start", { refs, unwatched: stage.runs(runs) });
    for (const [group, server] of [
      ["edge", edge.address],
      ["bare", { port }],
    ] as const) {
      await viewers.ask("watch", { group, server, runs: refs, each: viewersEach });
    }
    const topics = refs.map(({ run }) => run);
    const edgeSide: Contestant = {
      group: "edge",
      serverPid: edge.pid,
      makers: [publisher],
      burst: async (pattern) => {
        const made = await publisher.ask("burst", { pattern, on: "watched" });
        return { ...made, frames: made.durables + made.deltas };
      },
    };
    const bareSide = (sizes: FrameSizes): Contestant => ({
      group: "bare",
      serverPid: bare.pid,
      makers: [publisher],
      // Writers and NATS work on beside it, on runs that nobody watches: with them gone the machine's
      // caches and cores would be the bare server's alone, and the same system call cost it 30 % less.
      burst: async (pattern) => {
        const [made] = await Promise.all([
          bare.ask("burst", { topics, pattern, sizes }),
          publisher.ask("burst", { pattern, on: "unwatched" }),
        ]);
        return { ...made, frames: made.events };
      },
    });
    const figures: Figure[] = [];
    for (const lane of LANES) {
      const pattern: Pattern = {
        rate,
        runs,
        ms: options.sizes.windowMs,
        deltasPerCheckpoint: lane === "delta" ? DELTAS_PER_CHECKPOINT : 0,
      };
      const run = (side: Contestant, ms: number): Promise<Measured> =>
        measure(side, viewers, { ...pattern, ms }, viewersEach);
      say(`fan-out ${viewersEach}, ${lane}: warming up`);
      const warm = await run(edgeSide, options.sizes.warmUpMs);
      const yardstick = bareSide({ durable: warm.durableBytes, delta: warm.deltaBytes });
      // It has next to no code to compile.
      await run(yardstick, options.sizes.warmUpMs / 4);
      const ours: Measured[] = [];
      const theirs: Measured[] = [];
      const { rounds, spareRounds } = options.sizes;
      for (
        let i = 1;
        i <= rounds + spareRounds && !(enough(ours, rounds) && enough(theirs, rounds));
        i += 1
      ) {
        say(`fan-out ${viewersEach}, ${lane}: round ${i}, edge`);
        ours.push(await run(edgeSide, options.sizes.windowMs));
        say(`fan-out ${viewersEach}, ${lane}: round ${i}, bare`);
        theirs.push(await run(yardstick, options.sizes.windowMs));
      }
      const profile =
        options.profile === undefined
          ? []
          : await profiled(options.profile, edge, `fan-out-${viewersEach}-${lane}`, () =>
              run(edgeSide, options.sizes.windowMs),
            );
      figures.push({ lane, fanOut: viewersEach, runs, rate, ours, bare: theirs, profile });
    }
    return { figures, build };
  } finally {
    for (const group of ["edge", "bare"]) await viewers.ask("leave", { group });
    bare.stop();
    await edge.dispose();
  }
}

function enough(windows: readonly Measured[], rounds: number): boolean {
  return counting(windows).length >= rounds;
}

function counting(windows: readonly Measured[]): readonly Measured[] {
  return windows.filter(({ faults }) => faults.length === 0);
}

function rates(windows: readonly Measured[]): number[] {
  return counting(windows).map(({ perCpuSecond }) => perCpuSecond);
}

function rowOf({ lane, fanOut: each, runs, rate, ours, bare }: Figure): string[] {
  const thousands = (windows: readonly Measured[]): string =>
    digits(median(rates(windows)) / 1000, "k");
  const last = ours.at(-1);
  return [
    lane,
    `${each}`,
    `${runs}`,
    `${rate}`,
    `${lane === "delta" ? last?.deltaBytes : last?.durableBytes}`,
    thousands(ours),
    thousands(bare),
    percent(ratioOfMedians(rates(ours), rates(bare))),
    digits(1e6 / median(rates(ours))),
    `${eventsPerWakeUp(ours)} and ${eventsPerWakeUp(bare)}`,
    `${counting(ours).length}/${ours.length} and ${counting(bare).length}/${bare.length}`,
  ];
}

function aimsOf({ lane, fanOut: each, ours, bare }: Figure): Aim[] {
  const wanted = aimOf(each);
  if (wanted === undefined) return [];
  const ratio = ratioOfMedians(rates(ours), rates(bare));
  return [
    {
      what: `edge / bare at fan-out ${each}, ${lane}`,
      aim: `at least ${percent(wanted)}`,
      measured: percent(ratio),
      met: Number.isNaN(ratio) ? undefined : ratio >= wanted,
    },
  ];
}

function eventsPerWakeUp(windows: readonly Measured[]): string {
  return digits(median(counting(windows).map((window) => window.eventsPerWakeUp)));
}

function digits(value: number, unit = ""): string {
  return Number.isNaN(value) ? "–" : `${value.toFixed(1)}${unit}`;
}

function percent(share: number): string {
  return Number.isNaN(share) ? "–" : `${Math.round(share * 100)} %`;
}

function faultNotes({ lane, fanOut: each, ours, bare }: Figure): string[] {
  return [ours, bare].flatMap((windows) => {
    const refused = windows.filter(({ faults }) => faults.length > 0);
    const [first] = refused;
    if (first === undefined) return [];
    const why = `the first: ${first.faults.join("; ")}`;
    return [`Not counted, ${lane} at ${each}: ${refused.length} of ${first.group}; ${why}.`];
  });
}

/**
 * One more window under the profiler, not counted; gives the functions that took the time. V8 samples
 * wall time: on a busy machine, calls that wake another process look longer than they are.
 */
async function profiled(
  folder: string,
  edge: StagedEdge,
  name: string,
  work: () => Promise<Measured>,
): Promise<string[]> {
  if (edge.inspector === undefined) return [];
  const inspector = await openInspector(edge.inspector);
  try {
    const profile = await inspector.profile(work);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `edge-${name}.cpuprofile`), JSON.stringify(profile));
    const rows = selfTimes(profile)
      .slice(0, TOP)
      .map(({ where, share }) => [`${(share * 100).toFixed(1)} %`, `\`${where}\``]);
    const table = tableLines({ columns: ["share", "function"], rows });
    return [[`Where the edge's busy time goes, ${name}:`, "", ...table].join("\n")];
  } finally {
    inspector.close();
  }
}
