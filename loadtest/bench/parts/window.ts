/** One measured window of fan-out: a burst, counted at the viewers, its CPU read at the server. */
import { faultsOf } from "../figures/validity.ts";
import type { Pattern } from "../figures/pace.ts";
import { cpuClock, wakeUps } from "../process/proc.ts";
import type { Role } from "@throughline/testkit";
import type { Counts, ViewersMethods } from "../roles/viewers.ts";

/** Who is measured, and who drives it. */
export interface Contestant {
  readonly group: string;
  readonly serverPid: number;
  /** Processes that make the load, besides the viewers. */
  readonly makers: readonly { readonly name: string; readonly pid: number }[];
  /** Makes the events; tells how many frames each viewer of a run must get for them together. */
  burst(pattern: Pattern): Promise<{ frames: number; seconds: number; worstLagMs: number }>;
}

export interface Measured {
  readonly group: string;
  readonly frames: number;
  readonly expected: number;
  readonly seconds: number;
  readonly rate: number;
  readonly worstLagMs: number;
  readonly serverCpuSeconds: number;
  /** Deliveries per CPU second of the server. */
  readonly perCpuSecond: number;
  /** Mean number of events that the server found when its loop was woken. */
  readonly eventsPerWakeUp: number;
  readonly drivers: readonly { readonly name: string; readonly cores: number }[];
  /** Mean size of a frame, in bytes. */
  readonly durableBytes: number;
  readonly deltaBytes: number;
  /** Why it does not count; empty when it does. */
  readonly faults: readonly string[];
}

const DRAIN_MS = 5_000;

export async function measure(
  contestant: Contestant,
  viewers: Role<ViewersMethods>,
  pattern: Pattern,
  fanOut: number,
): Promise<Measured> {
  const { group } = contestant;
  const before = await viewers.ask("counts", { group });
  const start = performance.now();
  const server = cpuClock(contestant.serverPid);
  const asleep = wakeUps(contestant.serverPid);
  const drivers = [...contestant.makers, viewers].map(({ name, pid }) => ({
    name,
    clock: cpuClock(pid),
  }));
  const made = await contestant.burst(pattern);
  const expected = made.frames * fanOut;
  const after = await viewers.ask("reached", {
    group,
    frames: framesOf(before) + expected,
    timeoutMs: DRAIN_MS,
  });
  const serverCpuSeconds = server.lap();
  const woken = wakeUps(contestant.serverPid) - asleep;
  const seconds = (performance.now() - start) / 1000;
  const used = drivers.map(({ name, clock }) => ({ name, cores: clock.lap() / seconds }));
  const frames = framesOf(after) - framesOf(before);
  const durables = after.durables - before.durables;
  const deltas = after.deltas - before.deltas;
  const rate = made.frames / made.seconds;
  return {
    group,
    frames,
    expected,
    seconds,
    rate,
    worstLagMs: made.worstLagMs,
    serverCpuSeconds,
    perCpuSecond: frames / serverCpuSeconds,
    eventsPerWakeUp: made.frames / woken,
    drivers: used,
    durableBytes: mean(after.durableBytes - before.durableBytes, durables),
    deltaBytes: mean(after.deltaBytes - before.deltaBytes, deltas),
    faults: faultsOf({
      serverCores: serverCpuSeconds / seconds,
      wakeUps: woken / seconds,
      drivers: used,
      expected,
      delivered: frames,
      plannedRate: pattern.rate,
      rate,
      lostViewers: after.lost,
    }),
  };
}

function framesOf(counts: Counts): number {
  return counts.durables + counts.deltas;
}

function mean(sum: number, count: number): number {
  return count === 0 ? 0 : Math.round(sum / count);
}
