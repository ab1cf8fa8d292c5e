/** From the worker's call to the viewer's frame, beside what NATS alone needs for the same way. */
import { percentile } from "../figures/statistics.ts";
import type { Pattern } from "../figures/pace.ts";
import type { Sizes } from "../options.ts";
import type { PartReport, Say } from "../report/part.ts";
import type { Path } from "../roles/viewers.ts";
import type { Stage } from "../stage.ts";

const RUNS = 20;
/** A third each: durable, delta, bare. Low enough that nothing queues. */
const RATE = 600;
const DELTAS_PER_CHECKPOINT = 12;
const BARE = "bench.latency";

const PATHS: readonly { readonly path: Path; readonly name: string }[] = [
  { path: "nats", name: "bare NATS: publish → core subscription" },
  { path: "republished", name: "durable event: append → stored → live copy, straight from NATS" },
  { path: "delta", name: "delta: writer → NATS → edge → WebSocket" },
  { path: "durable", name: "durable event: append → stored → live copy → edge → WebSocket" },
];

export async function latency(stage: Stage, sizes: Sizes, say: Say): Promise<PartReport> {
  const { publisher, viewers, nats } = stage;
  say("latency: starting an edge");
  const edge = await stage.edge();
  try {
    const refs = stage.runs(RUNS);
    await publisher.ask("start", { refs });
    const watched = { group: "latency", server: edge.address, runs: refs, each: 1 };
    await viewers.ask("watch", watched);
    const republished = `tl.lv.*.${stage.tenant}.>`;
    await viewers.ask("readStamps", { natsUrl: nats.url, bare: BARE, republished });
    const pattern: Pattern = {
      rate: RATE,
      ms: sizes.warmUpMs,
      runs: RUNS,
      deltasPerCheckpoint: DELTAS_PER_CHECKPOINT,
    };
    say("latency: warming up");
    await publisher.ask("stampedBurst", { pattern, bare: BARE });
    await viewers.ask("takeSamples", {});
    say(`latency: measuring for ${sizes.latencyMs / 1000} s`);
    const measured = { ...pattern, ms: sizes.latencyMs };
    const { worstLagMs } = await publisher.ask("stampedBurst", { pattern: measured, bare: BARE });
    const samples = await viewers.ask("takeSamples", {});
    const rows = PATHS.map(({ path, name }) => {
      const values = samples[path];
      const ms = (share: number): string => (percentile(values, share) / 1000).toFixed(2);
      return { path, cells: [name, `${values.length}`, ms(0.5), ms(0.9), ms(0.99)] };
    });
    return {
      title: "Latency, worker → client through one edge",
      how: [
        `${RUNS} runs, ${RATE / 3} durable events, ${RATE / 3} deltas and ${RATE / 3} bare messages a second, one by one, in the same run; real run writers (fenced appends), file storage, one replica.`,
        "From just before the writer is called until the viewer has the whole frame, on the clock that all processes of the machine share; one process takes WebSocket frames and bare NATS messages alike.",
      ],
      table: {
        columns: ["way", "samples", "p50 ms", "p90 ms", "p99 ms"],
        rows: rows.map(({ cells }) => cells),
      },
      aims: [],
      notes: [],
      raw: {
        worstLagMs,
        ms: Object.fromEntries(
          PATHS.map(({ path }) => [
            path,
            {
              samples: samples[path].length,
              p50: percentile(samples[path], 0.5) / 1000,
              p90: percentile(samples[path], 0.9) / 1000,
              p99: percentile(samples[path], 0.99) / 1000,
              max: percentile(samples[path], 1) / 1000,
            },
          ]),
        ),
      },
    };
  } finally {
    await viewers.ask("leave", { group: "latency" });
    await edge.dispose();
  }
}
