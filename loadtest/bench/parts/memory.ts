/** What a connection costs that has subscribed and gets nothing. */
import type { RunRef } from "@throughline/broker";
import { rssBytes } from "../process/proc.ts";
import type { Role } from "@throughline/testkit";
import type { Sizes } from "../options.ts";
import type { PartReport, Say } from "../report/part.ts";
import type { ViewersMethods } from "../roles/viewers.ts";
import type { Stage } from "../stage.ts";

const AIM_BYTES = 8 * 1024;
/** Connections made and left before the first look: code compiled, pools and tables grown. */
const WARM_UP = 200;
const LOOK_MS = 250;
/** The resident set stands still when it moved by less than this over so many looks. */
const STILL_BYTES = 256 * 1024;
const STILL_LOOKS = 12;

interface Found {
  readonly name: string;
  readonly connections: number;
  readonly before: number;
  readonly half: number;
  readonly after: number;
}

export async function memory(stage: Stage, sizes: Sizes, say: Say): Promise<PartReport> {
  const others = stage.anotherViewers();
  const drivers = [stage.viewers, others];
  try {
    const { connections } = sizes;
    const [one] = stage.runs(1);
    if (one === undefined) throw new Error("no run was given");
    const found = [
      await idle(stage, drivers, sizes, "all on one run", Array(connections).fill(one), say),
      await idle(stage, drivers, sizes, "each on a run of its own", stage.runs(connections), say),
    ];
    return {
      title: "Resident memory of an idle subscribed connection",
      how: [
        `(RSS with ${connections} connections − RSS before) / ${connections}, of a fresh edge, the viewers spread over two processes. Before the first look ${WARM_UP} connections came and went. Each look waits until the resident set stands still, at most ${sizes.quietMs / 1000} s. The kernel's socket memory (about 4 KiB) is not in it.`,
        "The second half tells what one more connection costs, without what the first ones make grow once.",
      ],
      table: {
        columns: ["connections", "RSS before", "RSS with them", "each", "each of the second half"],
        rows: found.map((f) => [
          `${f.connections} ${f.name}`,
          mebibytes(f.before),
          mebibytes(f.after),
          kibibytes((f.after - f.before) / f.connections),
          kibibytes((f.after - f.half) / (f.connections / 2)),
        ]),
      },
      aims: found.slice(0, 1).map((f) => {
        const each = (f.after - f.before) / f.connections;
        return {
          what: `RSS per idle subscribed connection, ${f.name}`,
          aim: "under 8 KiB",
          measured: kibibytes(each),
          met: each < AIM_BYTES,
        };
      }),
      notes: [],
      raw: found,
    };
  } finally {
    others.stop();
  }
}

async function idle(
  stage: Stage,
  drivers: readonly Role<ViewersMethods>[],
  sizes: Sizes,
  name: string,
  refs: readonly RunRef[],
  say: Say,
): Promise<Found> {
  say(`memory, ${name}: starting an edge`);
  const edge = await stage.edge();
  const server = edge.address;
  try {
    const warmUp = stage.runs(refs[0] === refs[1] ? 1 : WARM_UP);
    await stage.publisher.ask("start", { refs: [...new Set(refs), ...warmUp] });
    const [first, second] = drivers;
    if (first === undefined || second === undefined) throw new Error("two drivers are needed");
    await first.ask("watch", {
      group: "warm-up",
      server,
      runs: warmUp,
      each: WARM_UP / warmUp.length,
    });
    await first.ask("leave", { group: "warm-up" });
    const before = await standingRss(edge.pid, sizes.quietMs);
    say(`memory, ${name}: ${refs.length} viewers connect`);
    const middle = Math.ceil(refs.length / 2);
    await first.ask("watch", { group: "idle", server, runs: refs.slice(0, middle), each: 1 });
    const half = await standingRss(edge.pid, sizes.quietMs);
    await second.ask("watch", { group: "idle", server, runs: refs.slice(middle), each: 1 });
    say(`memory, ${name}: waiting for a quiet heap`);
    const after = await standingRss(edge.pid, sizes.quietMs);
    for (const driver of drivers) {
      const { lost, why } = await driver.ask("counts", { group: "idle" });
      if (lost > 0) throw new Error(`${lost} of the idle viewers lost their connection: ${why}`);
    }
    return { name, connections: refs.length, before, half, after };
  } finally {
    for (const driver of drivers) await driver.ask("leave", { group: "idle" });
    await edge.dispose();
  }
}

/** The resident set once it stands still: garbage of the connecting is gone, or never goes. */
async function standingRss(pid: number, quietMs: number): Promise<number> {
  const giveUpAt = performance.now() + quietMs;
  const looks: number[] = [];
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    looks.push(rssBytes(pid));
    const last = looks.slice(-STILL_LOOKS);
    const still =
      last.length === STILL_LOOKS && Math.max(...last) - Math.min(...last) < STILL_BYTES;
    if (still || performance.now() > giveUpAt) return Math.min(...last);
  }
}

function mebibytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

function kibibytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(2)} KiB`;
}
