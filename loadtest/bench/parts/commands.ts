/** From a client's command to its answers, beside what a bare NATS request needs. */
import { percentile } from "../figures/statistics.ts";
import type { Sizes } from "../options.ts";
import type { PartReport, Say } from "../report/part.ts";
import { type BareSubjects, IDLE } from "../roles/names.ts";
import type { RoundTrips } from "../roles/commander.ts";
import type { Stage } from "../stage.ts";

const RUNS = 20;
const ACK_WAIT_MS = 30_000;
const BARE: BareSubjects = { request: "bench.request", stored: "bench.stored" };

const WAYS: readonly { readonly way: keyof RoundTrips; readonly name: string }[] = [
  { way: "request", name: "bare NATS: request → answer of another process" },
  { way: "stored", name: "bare JetStream: publish → stored → PubAck" },
  { way: "accepted", name: "command: client → edge → stored → `command.accepted`" },
  { way: "effect", name: "command: client → … → worker → stored event → edge → client" },
];

export async function commands(stage: Stage, sizes: Sizes, say: Say): Promise<PartReport> {
  say("commands: starting an edge and a worker");
  const edge = await stage.edge();
  const host = stage.host("worker");
  const commander = stage.commander();
  try {
    const natsUrl = stage.nats.url;
    await host.ask("open", { natsUrl, ackWaitMs: ACK_WAIT_MS });
    await host.ask("answerBare", { natsUrl, bare: BARE });
    await commander.ask("open", { natsUrl, server: edge.address });
    await commander.ask("start", { agent: IDLE, count: RUNS });
    say("commands: warming up");
    await commander.ask("roundTrips", { ms: sizes.warmUpMs, bare: BARE });
    say(`commands: measuring for ${sizes.commandsMs / 1000} s`);
    const trips = await commander.ask("roundTrips", { ms: sizes.commandsMs, bare: BARE });
    const figures = WAYS.map(({ way, name }) => {
      const values = trips[way];
      const ms = (share: number): number => percentile(values, share) / 1000;
      return { way, name, samples: values.length, p50: ms(0.5), p90: ms(0.9), p99: ms(0.99) };
    });
    return {
      title: "A command's round trip through one edge",
      how: [
        `${RUNS} runs on one worker (worker SDK, file storage, one replica) and one client; a bare request, a bare stored message and a \`run.continue\` in turns, each when the one before has its answer.`,
        "From just before it is sent until the answer has been read, on the client's clock. The effect is the event that answers the command (`reply_to`).",
      ],
      table: {
        columns: ["way", "samples", "p50 ms", "p90 ms", "p99 ms"],
        rows: figures.map(({ name, samples, p50, p90, p99 }) => [
          name,
          `${samples}`,
          ...[p50, p90, p99].map((ms) => ms.toFixed(2)),
        ]),
      },
      aims: [],
      notes: [],
      raw: Object.fromEntries(figures.map(({ way, ...figure }) => [way, figure])),
    };
  } finally {
    commander.stop();
    host.stop();
    await edge.dispose();
  }
}
