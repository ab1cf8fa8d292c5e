import { describe, expect, test } from "vitest";
import { dueAfter, eventAt, eventsOf, paced, type Pattern } from "../bench/figures/pace.ts";
import { median, percentile, ratioOfMedians } from "../bench/figures/statistics.ts";
import { faultsOf, type Window } from "../bench/figures/validity.ts";
import { cpuSecondsOf } from "../bench/process/proc.ts";
import { selfTimes } from "../bench/profile/self-times.ts";

describe("statistics", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);

  test("a percentile is the nearest rank, whatever the order of the samples", () => {
    expect(percentile(hundred, 0.5)).toBe(50);
    expect(percentile(hundred, 0.99)).toBe(99);
    expect(percentile(hundred, 1)).toBe(100);
    expect(percentile([7], 0.99)).toBe(7);
    expect(percentile([], 0.5)).toBeNaN();
  });

  test("numbers are ordered as numbers", () => {
    expect(percentile([9, 10, 100], 0.5)).toBe(10);
    expect(median([100, 9, 10])).toBe(10);
  });

  test("the median of an even number is between the two middle ones", () => {
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(median([])).toBeNaN();
  });

  test("one disturbed round does not move the ratio", () => {
    expect(ratioOfMedians([60, 61, 5], [100, 100, 100])).toBe(0.6);
    expect(ratioOfMedians([], [100])).toBeNaN();
  });
});

describe("validity of a window", () => {
  const good: Window = {
    serverCores: 0.4,
    wakeUps: 40,
    drivers: [
      { name: "publisher", cores: 0.5 },
      { name: "viewers", cores: 0.9 },
    ],
    expected: 1_000,
    delivered: 1_000,
    plannedRate: 100,
    rate: 96,
    lostViewers: 0,
  };

  test("a window that nothing limited counts", () => {
    expect(faultsOf(good)).toEqual([]);
    // The generator's ticks, and not its events, are what a fast pattern wakes a server for.
    expect(faultsOf({ ...good, plannedRate: 3_000, rate: 3_000, wakeUps: 400 })).toEqual([]);
  });

  test.each<[string, Partial<Window>, RegExp]>([
    [
      "a driver over its core",
      { drivers: [{ name: "viewers", cores: 0.91 }] },
      /viewers used 91 % .* bottleneck/,
    ],
    ["a server over its core", { serverCores: 0.95 }, /no longer came one by one/],
    ["a server that waited for a core", { wakeUps: 39 }, /woke 39 times .* too busy/],
    ["a frame that is missing", { delivered: 999 }, /999 frames .* 1000 expected/],
    ["a frame too many", { delivered: 1_001 }, /1001 frames .* 1000 expected/],
    ["a late generator", { rate: 94 }, /94 events\/s were made, 100 planned/],
    ["a lost viewer", { lostViewers: 1 }, /1 viewers lost/],
  ])("%s refuses it", (_, change, fault) => {
    const faults = faultsOf({ ...good, ...change });
    expect(faults).toHaveLength(1);
    expect(faults[0]).toMatch(fault);
  });
});

describe("the arrival pattern", () => {
  const pattern: Pattern = { rate: 2_000, ms: 1_000, runs: 3, deltasPerCheckpoint: 2 };

  test("events fall due one by one, and none after the end", () => {
    expect(dueAfter(0, pattern)).toBe(0);
    expect(dueAfter(0.5, pattern)).toBe(1);
    expect(dueAfter(10, pattern)).toBe(20);
    expect(dueAfter(60_000, pattern)).toBe(eventsOf(pattern));
  });

  test("runs take turns, and each stores a checkpoint after its deltas", () => {
    const events = Array.from({ length: 12 }, (_, i) => eventAt(i, pattern));
    expect(events.map(({ run }) => run)).toEqual([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    expect(events.map(({ durable }) => durable).map(Number)).toEqual([
      0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0,
    ]);
  });

  test("without deltas every event is durable", () => {
    expect(eventAt(5, { ...pattern, deltasPerCheckpoint: 0 }).durable).toBe(true);
  });

  test("every event is made once, in order, and not before it is due", async () => {
    const short: Pattern = { ...pattern, ms: 50 };
    const start = performance.now();
    const early: number[] = [];
    const made: number[] = [];
    const figures = await paced(short, (i) => {
      made.push(i);
      if (dueAfter(performance.now() - start, short) <= i) early.push(i);
    });
    expect(made).toEqual(Array.from({ length: 100 }, (_, i) => i));
    expect(early).toEqual([]);
    expect(figures.events).toBe(100);
  });

  test("a generator that fails says so", async () => {
    await expect(
      paced({ ...pattern, ms: 5 }, () => {
        throw new Error("no more");
      }),
    ).rejects.toThrow("no more");
  });
});

test("CPU time is found behind a process name that holds parentheses and spaces", () => {
  const stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 11 0 100 1 1";
  expect(cpuSecondsOf(stat)).toBe(2);
  expect(() => cpuSecondsOf("nonsense")).toThrow(/not a line/);
});

test("self times are shares of the busy time, and say where without the checkout's folder", () => {
  const frame = (functionName: string, url: string, lineNumber: number) => ({
    functionName,
    url,
    lineNumber,
  });
  const profile = {
    nodes: [
      { id: 1, callFrame: frame("(idle)", "", -1) },
      { id: 2, callFrame: frame("publish", "", -1) },
      { id: 3, callFrame: frame("get", "file:///home/x/throughline/libs/broker/dist/a.js", 9) },
    ],
    samples: [1, 2, 3, 2],
    timeDeltas: [1_000, 100, 100, 200],
  };
  expect(selfTimes(profile)).toEqual([
    { where: "publish", share: 0.75 },
    { where: "get libs/broker/dist/a.js:10", share: 0.25 },
  ]);
});
