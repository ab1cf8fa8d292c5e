import { seededRandom } from "@throughline/testkit";
import { FANOUT_LIMITS, maxBackpressure } from "../src/fanout/limits.ts";
import { Turn } from "../src/fanout/turn.ts";
import { describe, expect, test } from "vitest";
import { Slots } from "../src/lifecycle/admission.ts";
import { drain, type DrainOptions } from "../src/lifecycle/drain.ts";
import { Sweep } from "../src/lifecycle/sweep.ts";
import { loadUws, UwsUnavailable } from "../src/transport/uws.ts";
import { validateOptions } from "../src/transport/websocket.ts";

describe("admission", () => {
  test("[LIFE4] slots are taken, waited for in order, and refused when the line is full", async () => {
    const slots = new Slots(1, 2);
    const order: string[] = [];
    const enter = async (name: string): Promise<void> => {
      order.push(`${name} ${await slots.take()}`);
    };
    await enter("a");
    const others = [enter("b"), enter("c"), enter("d")];
    await Promise.resolve();
    expect([slots.taken, slots.queued, slots.tryTake()]).toEqual([1, 2, false]);
    slots.give();
    slots.give();
    await Promise.all(others);
    expect(order).toEqual(["a taken", "d full", "b taken", "c taken"]);
    slots.give();
    expect([slots.taken, slots.queued]).toEqual([0, 0]);
  });
});

describe("the sweep", () => {
  test("[LIFE6] a round looks at all once, some at each tick, whoever comes and goes", () => {
    const seen: string[] = [];
    const sweep = new Sweep<{ name: string; sweep(now: number): void }>(4);
    const item = (name: string): { name: string; sweep(now: number): void } => ({
      name,
      sweep: () => seen.push(name),
    });
    const items = ["a", "b", "c", "d", "e", "f", "g", "h"].map(item);
    for (const each of items) sweep.add(each);
    sweep.tick(0);
    expect(seen).toEqual(["a", "b"]);
    const [, , c] = items;
    if (c) sweep.remove(c);
    sweep.add(item("i"));
    for (let i = 0; i < 4; i += 1) sweep.tick(0);
    expect(seen.toSorted().join("")).toBe("abdefghi");
    for (let i = 0; i < 5; i += 1) sweep.tick(0);
    expect(seen.filter((name) => name === "a").length).toBeGreaterThanOrEqual(2);
  });
});

describe("draining", () => {
  /** Clients that note what they are told, and when. */
  function stage(count: number, options: Partial<DrainOptions> = {}) {
    const clock = { now: 0 };
    const steps: string[] = [];
    const log: { told: number; after: number; closedAt: number | undefined }[] = [];
    const connections = Array.from({ length: count }, (_, i) => ({
      isBusy: false,
      canLeave: true,
      goaway: (ms: number) => void (log[i] ??= { told: clock.now, after: ms, closedAt: undefined }),
      close: (code: number) => {
        expect(code).toBe(1012);
        const entry = log[i];
        if (entry) entry.closedAt ??= clock.now;
      },
    }));
    const random = seededRandom();
    const run = drain({
      delayMs: 3_000,
      spreadMs: 1_000,
      connections: () => connections,
      open: () => count - log.filter(({ closedAt }) => closedAt !== undefined).length,
      arrivals: () => 0,
      requests: () => 0,
      stopListening: () => void steps.push(`stop at ${clock.now}`),
      random: () => random.next(),
      now: () => clock.now,
      wait: (ms) => {
        clock.now += ms;
        return Promise.resolve();
      },
      turn: () => {
        steps.push(`turn at ${clock.now}`);
        return Promise.resolve();
      },
      ...options,
    });
    return { clock, steps, log, connections, run };
  }

  test("[LIFE3] accepts for a while, stops in a quiet moment, spreads the goaways evenly, closes what stays", async () => {
    const { steps, log, run } = stage(250);
    await run;
    expect(steps).toEqual(["turn at 3020", "stop at 3020"]);
    // Told within a few ticks, to go within the second: even, and each a second of its own to do so.
    const dues = log.map(({ told, after }) => told + after - 3_020);
    for (let quarter = 0; quarter < 4; quarter += 1) {
      const there = dues.filter((due) => Math.floor(due / 250) === quarter).length;
      expect(there).toBeGreaterThan(59);
      expect(there).toBeLessThan(66);
    }
    expect(Math.max(...log.map(({ told }) => told))).toBeLessThan(3_100);
    for (const { told, after, closedAt = NaN } of log) {
      expect(closedAt - told - after).toBeGreaterThanOrEqual(1_000);
      expect(closedAt - told - after).toBeLessThan(1_050);
    }
  });

  test("[LIFE3] all are told before their time, however many there are, and few do not take all of it", async () => {
    const many = stage(20_000);
    await many.run;
    expect(Math.max(...many.log.map(({ told }) => told))).toBeLessThanOrEqual(4_060);
    const few = stage(3, { spreadMs: 60_000 });
    await few.run;
    expect(few.clock.now).toBeLessThan(4_200);
  });

  test("[LIFE3] [SSE7] a stream, whose client only listens, is ended at its time", async () => {
    const { log, connections, run } = stage(40);
    for (const connection of connections) connection.canLeave = false;
    await run;
    for (const { told, after, closedAt = NaN } of log) {
      expect(closedAt - told - after).toBeGreaterThanOrEqual(0);
      expect(closedAt - told - after).toBeLessThan(50);
    }
  });

  test("[LIFE3] a client that waits for an answer is given a second for it", async () => {
    const { log, connections, run, clock } = stage(2);
    const [waits, stuck] = connections;
    if (!waits || !stuck) throw new Error("two clients are wanted");
    Object.defineProperty(waits, "isBusy", { get: () => clock.now < 4_300 });
    stuck.isBusy = true;
    await run;
    expect(log[0]?.closedAt).toBeGreaterThanOrEqual(4_300);
    expect(log[0]?.closedAt).toBeLessThan(4_350);
    expect(log[1]?.closedAt).toBeGreaterThanOrEqual(5_020);
    expect(log[1]?.closedAt).toBeLessThan(5_100);
  });

  test("[LIFE3] HTTP requests under way are waited for, and not for ever", async () => {
    let asked = 0;
    const ends = stage(0, { requests: () => ((asked += 1) < 10 ? 1 : 0) });
    await ends.run;
    expect(ends.clock.now).toBe(3_020 + 10 * 20);
    const never = stage(0, { requests: () => 1 });
    await never.run;
    expect(never.clock.now).toBeLessThan(3_020 + 20_100);
  });

  test("[LIFE3] the listener is closed when nobody has come for a tick, and after a second at the latest", async () => {
    let arrived = 0;
    const ceases = stage(0, { arrivals: () => (arrived = Math.min(arrived + 1, 5)) });
    await ceases.run;
    expect(ceases.steps.at(-1)).toBe(`stop at ${3_000 + 5 * 20}`);
    const busy = stage(0, { arrivals: () => (arrived += 1) });
    await busy.run;
    expect(busy.steps.at(-1)).toBe("stop at 4000");
  });
});

describe("the turn", () => {
  test("[LAG1] [HUB3] looks at sockets first, then publishes what waits, then feeds within its share", () => {
    const order: string[] = [];
    let run: () => void = () => undefined;
    const limits = { ...FANOUT_LIMITS, turnBytes: 100, feedBytes: 10 };
    const turn = new Turn(limits, (after) => {
      run = after;
    });
    const hub = {
      look: () => void order.push("look"),
      publishWaiting: () => void order.push(`publish ${String(turn.take(100))}`),
    };
    const fed = (name: string): { step(): number } => ({
      step: () => {
        order.push(name);
        return 6;
      },
    });
    expect([turn.take(60), turn.take(60), turn.take(40)]).toEqual([true, false, true]);
    for (const name of ["a", "b", "c"]) turn.due(fed(name));
    turn.published(hub);
    turn.wait(hub);
    run();
    expect(order).toEqual(["look", "publish true", "a", "b"]);
    run();
    expect(order.at(-1)).toBe("c");
  });

  test("[HUB3] a message over the whole share goes out in a turn of its own", () => {
    const turn = new Turn({ ...FANOUT_LIMITS, turnBytes: 100 }, () => undefined);
    expect([turn.take(500), turn.take(1)]).toEqual([true, false]);
  });
});

describe("the uWebSockets seam", () => {
  test("[LIFE2] it takes a native build, never the imitation", () => {
    const { build, module } = loadUws();
    expect(build).toMatch(/uWebSockets\.js 20/);
    expect(module.App().constructor.name).toBe("uWS.App");
    const imitation = { name: "imitation", path: "@trufflesuite/uws-js-unofficial/dist/index.js" };
    const missing = { name: "missing", path: "@trufflesuite/uws-js-unofficial/binaries/none.node" };
    expect(() => loadUws([imitation, missing])).toThrow(UwsUnavailable);
    expect(() => loadUws([imitation, missing])).toThrow(
      /imitation: .* is not the native addon\n.*missing: .* is not installed/,
    );
  });

  test("[LIFE2] options that would abort the process are refused", () => {
    const fine = { idleTimeout: 60, maxBackpressure: maxBackpressure(FANOUT_LIMITS) };
    expect(() => validateOptions(fine)).not.toThrow();
    for (const idleTimeout of [0, 7, 961, 60.5, Number.NaN]) {
      expect(() => validateOptions({ ...fine, idleTimeout })).toThrow(RangeError);
    }
    expect(() => validateOptions({ ...fine, maxBackpressure: 1_000 })).toThrow(RangeError);
  });
});
