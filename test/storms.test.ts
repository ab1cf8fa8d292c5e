/** A node with 2,000 clients goes, told to or not: all of them go on at the other, and nothing is lost. */
import { type Edge, eventually, type Fleet, startFleet } from "@throughline/testkit";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { comeback, quantile, series, spread, totals, watchLag } from "./figures.ts";
import { startWrittenRuns, TOKEN, type WrittenRuns } from "./written-runs.ts";
import { startWorld, type World } from "./world.ts";

const CLIENTS = process.env["SOAK"] ? 8_000 : 2_000;
/** The clients share the machine's cores with the nodes, and are most of the work. */
const PATIENCE_MS = process.env["SOAK"] ? 600_000 : 240_000;
const RUNS = 20;
const GRACE_MS = 3 * CLIENTS;

let world: World;
let going: Edge;
let staying: Edge;
let fleet: Fleet;
let runs: WrittenRuns;

beforeEach(async () => {
  world = await startWorld();
  [going, staying] = await Promise.all([
    world.edge({ env: { TL_DRAIN_MS: `${GRACE_MS}` } }),
    world.edge(),
  ]);
  runs = await startWrittenRuns(world, going, RUNS);
  fleet = startFleet(CLIENTS / 1_000);
  for (const { session, run } of runs.refs) {
    const urls = [going.url, staying.url];
    const each = { transport: "socket", count: CLIENTS / RUNS, token: TOKEN } as const;
    await fleet.watch({ ...each, urls, session, run });
  }
  expect(await series(going, "throughline_edge_connections")).toBe(CLIENTS);
}, PATIENCE_MS);
afterEach(async () => {
  fleet.dispose();
  await world.dispose();
});

describe("[INV2] [INV10] a node with 2,000 clients", () => {
  test(
    "[LIFE3] [C13] is told to stop: all are told to go, leave evenly over the grace by themselves, and miss nothing",
    async () => {
      const lag = watchLag(staying);
      const writing = runs.write(1_000);
      const exit = await going.stop();
      expect(exit.code).toBe(0);
      const seq = await writing.stop();
      expect(await fleet.reached(seq, PATIENCE_MS / 2)).toBe(0);
      const reports = await fleet.reports();
      expect(reports.map(({ returns }) => returns.length)).toEqual(reports.map(() => 1));
      const returns = reports.flatMap((report) => report.returns);
      // All were told a time, evenly over the grace: a quarter of them for each quarter of it.
      const times = returns.map(({ told }) => told?.afterMs ?? NaN);
      const longest = Math.max(...times);
      expect(longest).toBeGreaterThan(0.7 * GRACE_MS);
      expect(longest).toBeLessThanOrEqual(GRACE_MS);
      for (const part of [0.25, 0.5, 0.75])
        expect(Math.abs(quantile(times, part) / longest - part)).toBeLessThan(0.1);
      // Each left by itself, and not before its time; but a client that is too busy to do so is closed.
      const left = returns.filter(({ code }) => code === 1000);
      expect(returns.filter(({ code }) => code !== 1000 && code !== 1012)).toEqual([]);
      for (const { lostAt, told } of left)
        expect(lostAt - (told?.at ?? NaN)).toBeGreaterThan((told?.afterMs ?? NaN) - 5);
      const first = Math.min(...returns.map(({ told }) => told?.at ?? NaN));
      const perSecond = Array.from(
        { length: Math.ceil(Math.max(...returns.map(({ lostAt }) => lostAt - first)) / 1_000) },
        (_, i) => returns.filter(({ lostAt }) => Math.floor((lostAt - first) / 1_000) === i).length,
      );
      const { lastMs, away, replay, failed } = comeback(returns);
      console.log(
        `drain of ${CLIENTS} clients over ${GRACE_MS} ms: left per second ${perSecond.join(" ")}, ` +
          `${left.length} by themselves; ` +
          `last back after ${lastMs.toFixed(0)} ms; away ${spread(away)}; replay ${spread(replay)}; ` +
          `${failed} failed connects; worst loop lag of the other node ${await lag.stop()} ms`,
      );
      expect(totals(reports)).toEqual({ holes: 0, repeats: 0 });
      expect(await series(staying, "throughline_edge_connections")).toBe(CLIENTS);
    },
    PATIENCE_MS,
  );

  test(
    "[LIFE4] is killed: all are back at the other node, which is never busy for long, and miss nothing",
    async () => {
      const writing = runs.write(1_000);
      await eventually(
        async () => (await series(going, "throughline_edge_frames_published_total")) > 0,
      );
      const lag = watchLag(staying);
      await going.kill();
      // The second event from now on was written when the storm had begun.
      const midway = runs.seq() + 2;
      expect(await fleet.reached(midway, PATIENCE_MS / 2)).toBe(0);
      const seq = await writing.stop();
      expect(await fleet.reached(seq, PATIENCE_MS / 2)).toBe(0);
      const reports = await fleet.reports();
      const returns = reports.flatMap((report) => report.returns);
      const { lastMs, away, replay, failed } = comeback(returns);
      const worst = await lag.stop();
      console.log(
        `kill -9 under ${CLIENTS} clients: last back after ${lastMs.toFixed(0)} ms; away ${spread(away)}; ` +
          `replay ${spread(replay)}; ${failed} failed connects; worst loop lag of the other node ${worst} ms`,
      );
      expect(reports.map(({ returns: own }) => own.length)).toEqual(reports.map(() => 1));
      expect(returns.filter(({ code }) => code !== 1006)).toEqual([]);
      expect(totals(reports)).toEqual({ holes: 0, repeats: 0 });
      // Generous: the cores are shared with the clients. It says that the node was not stuck.
      expect(worst).toBeLessThan(2_000);
    },
    PATIENCE_MS,
  );
});
