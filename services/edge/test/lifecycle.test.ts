import { FANOUT_LIMITS, maxBackpressure } from "../src/fanout/limits.ts";
import { Turn } from "../src/fanout/turn.ts";
import { describe, expect, test } from "vitest";
import { Slots } from "../src/lifecycle/admission.ts";
import { drain } from "../src/lifecycle/drain.ts";
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
  test("[LIFE3] accepts for a while, stops, tells all when to come back, and closes them in batches", async () => {
    const steps: string[] = [];
    const delays: number[] = [];
    let open = 0;
    let most = 0;
    let batch = 0;
    const connections = Array.from({ length: 250 }, () => ({
      goaway: (ms: number) => void delays.push(ms),
      close: (code: number) => {
        expect(code).toBe(1012);
        open += 1;
        batch += 1;
        most = Math.max(most, batch);
      },
    }));
    let n = 0;
    await drain({
      delayMs: 3_000,
      spreadMs: 1_000,
      connections: () => connections,
      stopListening: () => void steps.push(`stop after ${steps.join("+")}`),
      random: () => (n += 1) / 251,
      wait: (ms) => {
        batch = 0;
        if (open === 0 && delays.length === 0) steps.push(String(ms));
        return Promise.resolve();
      },
    });
    expect(steps.at(-1)).toBe("stop after 3000+20");
    expect(open).toBe(250);
    expect(most).toBe(100);
    expect(Math.min(...delays)).toBeLessThan(50);
    expect(Math.max(...delays)).toBeGreaterThan(900);
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
