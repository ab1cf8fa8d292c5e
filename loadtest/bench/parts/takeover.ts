/** How long a run stands still when its worker is killed. */
import { percentile } from "../figures/statistics.ts";
import type { Sizes } from "../options.ts";
import { sharedMicros } from "../process/proc.ts";
import type { PartReport, Say } from "../report/part.ts";
import { TICKING } from "../roles/names.ts";
import type { Stage } from "../stage.ts";

/** Beyond the lease: the redelivery, the owner check, the log's reading. */
const PATIENCE_MS = 20_000;

export async function takeover(stage: Stage, sizes: Sizes, say: Say): Promise<PartReport> {
  const { takeovers, takeoverAckWaitMs: ackWaitMs } = sizes;
  const natsUrl = stage.nats.url;
  say("takeover: starting an edge");
  const edge = await stage.edge();
  const commander = stage.commander();
  const resumed: number[] = [];
  const wentOn: number[] = [];
  try {
    await commander.ask("open", { natsUrl, server: edge.address });
    for (let n = 0; n < takeovers; n += 1) {
      say(`takeover: ${n + 1} of ${takeovers}`);
      const hosts = await Promise.all(
        ["one", "two"].map(async (name) => {
          const role = stage.host(name);
          return { role, id: await role.ask("open", { natsUrl, ackWaitMs }) };
        }),
      );
      const [worker] = await commander.ask("start", { agent: TICKING, count: 1 });
      const victim = hosts.find(({ id }) => id === worker);
      if (victim === undefined) throw new Error(`nobody is ${worker}`);
      const succession = commander.ask("succession", { timeoutMs: ackWaitMs + PATIENCE_MS });
      // Between two of its signs of life, as chance has it.
      await new Promise((resolve) => setTimeout(resolve, Math.random() * ackWaitMs));
      const killedAt = sharedMicros();
      victim.role.stop();
      const seen = await succession;
      resumed.push((seen.resumed - killedAt) / 1e6);
      wentOn.push((seen.wentOn - killedAt) / 1e6);
      await commander.ask("cancel", {});
      for (const { role } of hosts) role.stop();
    }
    const row = (name: string, values: readonly number[]): string[] => [
      name,
      `${values.length}`,
      ...[0, 0.5, 1].map((share) => percentile(values, share).toFixed(2)),
    ];
    return {
      title: "Takeover after `kill -9` of a worker",
      how: [
        `Two workers with a lease (\`ackWaitMs\`) of ${ackWaitMs / 1000} s, one run whose agent writes a word every 10 ms; the one that has the run is killed at a random moment within a lease.`,
        "From the kill until the client sees the event, on the clock that all processes of the machine share.",
      ],
      table: {
        columns: ["until", "kills", "least s", "p50 s", "most s"],
        rows: [row("`run.resumed`", resumed), row("the agent writes again", wentOn)],
      },
      aims: [
        {
          what: "until the agent goes on, at most",
          aim: `at most the lease and 1 s (${ackWaitMs / 1000 + 1} s)`,
          measured: `${percentile(wentOn, 1).toFixed(2)} s`,
          met: percentile(wentOn, 1) <= ackWaitMs / 1000 + 1,
        },
      ],
      notes: [],
      raw: { ackWaitMs, resumed, wentOn },
    };
  } finally {
    commander.stop();
    await edge.dispose();
  }
}
