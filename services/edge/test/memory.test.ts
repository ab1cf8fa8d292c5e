import { describe, expect, test } from "vitest";
import { Budget, type Evictable } from "../src/fanout/budget.ts";
import type { Entry } from "../src/fanout/frame.ts";
import { LogFed } from "../src/fanout/log-fed.ts";
import { Pages } from "../src/fanout/pages.ts";
import { Reads } from "../src/fanout/reads.ts";
import { Ring } from "../src/fanout/ring.ts";

function entry(streamSeq: number, bytes = 100): Entry {
  return {
    run: "r",
    streamSeq,
    prev: 0,
    firstSeq: streamSeq,
    lastSeq: streamSeq,
    epoch: "e",
    tag: "t",
    attempt: 1,
    barrier: 0,
    settled: 0,
    end: false,
    frames: [],
    bytes,
  };
}

function contents(ring: Ring, after: number): number[] {
  const found: number[] = [];
  for (let i = ring.indexAfter(after); ; i += 1) {
    const next = ring.entryAt(i);
    if (next === undefined) return found;
    found.push(next.streamSeq);
  }
}

describe("the ring", () => {
  test("[HUB6] it keeps the newest within its limits of bytes and of messages", () => {
    const ring = new Ring({ bytes: 350, messages: 100 }, 10, 10);
    for (let seq = 12; seq <= 60; seq += 2) ring.push(entry(seq), seq - 2);
    expect(contents(ring, 0)).toEqual([56, 58, 60]);
    expect(ring.from).toBe(54);
    expect(ring.covers(54)).toBe(true);
    expect(ring.covers(53)).toBe(false);
    const few = new Ring({ bytes: 1e9, messages: 2 }, 0, 0);
    for (let seq = 1; seq <= 9; seq += 1) few.push(entry(seq), seq);
    expect(contents(few, 0)).toEqual([8, 9]);
    expect(few.bytes).toBe(200);
  });

  test("[HUB3] what is not published yet is not let go", () => {
    const ring = new Ring({ bytes: 100, messages: 1 }, 0, 0);
    for (let seq = 1; seq <= 5; seq += 1) ring.push(entry(seq), 2);
    expect(contents(ring, 0)).toEqual([3, 4, 5]);
    ring.trim({ bytes: 0, messages: 0 }, 4);
    expect(contents(ring, 0)).toEqual([5]);
  });

  test("[HUB5] a late message is put in its place, or left to the log if that place is gone", () => {
    const ring = new Ring({ bytes: 1e9, messages: 100 }, 10, 10);
    for (const seq of [11, 13, 20]) ring.push(entry(seq), seq);
    ring.insert(entry(12));
    ring.insert(entry(9));
    expect(contents(ring, 0)).toEqual([11, 12, 13, 20]);
    expect(contents(ring, 12)).toEqual([13, 20]);
  });
});

describe("the byte budget", () => {
  test("[HUB6] what was used least recently goes first, and never what came just now", () => {
    const evicted: string[] = [];
    const budget = new Budget(300);
    const item = (name: string): Evictable => {
      const self: Evictable = {
        evict: () => {
          evicted.push(name);
          budget.charge(self, 0);
        },
      };
      return self;
    };
    const [a, b, c, d] = ["a", "b", "c", "d"].map(item);
    if (!a || !b || !c || !d) throw new Error("four items are wanted");
    budget.charge(a, 100);
    budget.charge(b, 100);
    budget.charge(c, 100);
    budget.touch(a);
    budget.charge(d, 150);
    expect(evicted).toEqual(["b", "c"]);
    expect(budget.total).toBe(250);
    budget.charge(d, 1_000);
    expect(evicted).toEqual(["b", "c", "a"]);
    expect(budget.total).toBe(1_000);
  });
});

describe("log pages", () => {
  /** A log of even numbers up to 400; reads are answered by hand. */
  function setUp(): {
    pages: Pages;
    reads: { after: number; upTo: number; answer: (count: number) => Promise<void> }[];
  } {
    const reads: ReturnType<typeof setUp>["reads"] = [];
    const read = (after: number, upTo: number): Promise<{ entries: Entry[]; end: boolean }> =>
      new Promise((resolve) => {
        const answer = async (count: number): Promise<void> => {
          const first = after + 2 - (after % 2);
          const all = Array.from({ length: 200 }, (_, i) => first + 2 * i).filter((n) => n <= 400);
          const entries = all.slice(0, count).map((n) => entry(n));
          resolve({
            entries,
            end: entries.length === all.length || (entries.at(-1)?.streamSeq ?? 0) >= upTo,
          });
          await new Promise((done) => setImmediate(done));
        };
        reads.push({ after, upTo, answer });
      });
    return { pages: new Pages(read, new Budget(1e9), () => 0), reads };
  }
  const ringFrom = (): number => 400;

  test("[HUB7] a thousand clients just behind the ring cost two reads", async () => {
    const { pages, reads } = setUp();
    const wanted = Array.from({ length: 1_000 }, (_, i) => 200 + ((i * 37 + 100) % 199));
    const all = Promise.all(wanted.map((after) => pages.want(after, ringFrom)));
    // The first who asked is served first; then, at once, all the others from the lowest place.
    await reads[0]?.answer(1_000);
    await reads[1]?.answer(1_000);
    const got = await all;
    got.forEach((page, i) => {
      expect(page.after).toBeLessThanOrEqual(wanted[i] ?? -1);
      expect(page.to).toBeGreaterThan(wanted[i] ?? Infinity);
    });
    expect(reads).toHaveLength(2);
  });

  test("[HUB7] pages are disjoint: a read stops where the next page begins, and at the ring", async () => {
    const { pages, reads } = setUp();
    const first = pages.want(100, ringFrom);
    await reads[0]?.answer(10);
    expect(await first).toMatchObject({ after: 100, to: 120 });
    const second = pages.want(90, ringFrom);
    await reads[1]?.answer(100);
    expect(reads[1]?.upTo).toBe(100);
    const page = await second;
    expect(page).toMatchObject({ after: 90, to: 100 });
    expect(page.entries.map((e) => e.streamSeq)).toEqual([92, 94, 96, 98, 100]);
    expect(pages.covering(110)?.after).toBe(100);
    expect(pages.covering(120)).toBeUndefined();
  });

  test("[HUB7] a failed read fails who waited for it, and the next one is tried", async () => {
    let fail = true;
    const pages = new Pages(
      () =>
        fail
          ? Promise.reject(new Error("away"))
          : Promise.resolve({ entries: [entry(5)], end: true }),
      new Budget(1e9),
      () => 0,
    );
    await expect(pages.want(1, () => 10)).rejects.toThrow("away");
    fail = false;
    await expect(pages.want(1, () => 10)).resolves.toMatchObject({ after: 1, to: 10 });
  });

  test("[HUB6] pages that nobody uses are forgotten", async () => {
    let now = 0;
    const budget = new Budget(1e9);
    const pages = new Pages(
      (after) => Promise.resolve({ entries: [entry(after + 1)], end: false }),
      budget,
      () => now,
    );
    await pages.want(1, () => 100);
    now = 5;
    await pages.want(10, () => 100);
    pages.forgetUnused(3);
    expect(pages.covering(1)).toBeUndefined();
    expect(pages.covering(10)).toBeDefined();
    pages.clear();
    expect(budget.total).toBe(0);
  });
});

describe("log reads of a node", () => {
  test("[LIFE4] at most so many run at a time, and all of them run, also after a failure", async () => {
    const reads = new Reads(2);
    let running = 0;
    let most = 0;
    const results = await Promise.allSettled(
      Array.from({ length: 9 }, (_, i) =>
        reads.run(async () => {
          running += 1;
          most = Math.max(most, running);
          await new Promise((resolve) => setImmediate(resolve));
          running -= 1;
          if (i % 3 === 0) throw new Error("no");
          return i;
        }),
      ),
    );
    expect(most).toBe(2);
    expect(results.map((r) => r.status).filter((s) => s === "fulfilled")).toHaveLength(6);
    expect(reads.waiting).toBe(0);
  });
});

describe("what a session's client had from the log", () => {
  test("[HUB5] intervals that meet are one; the start covers all before it", () => {
    const fed = new LogFed(10);
    fed.add(10, 15);
    fed.add(15, 20);
    fed.add(40, 42);
    expect([1, 10, 20, 41, 42].every((seq) => fed.has(seq))).toBe(true);
    expect([21, 40, 43].some((seq) => fed.has(seq))).toBe(false);
  });
});
