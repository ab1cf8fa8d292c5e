import { randomOf, seededRandom } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { type Delta, Gate } from "../src/fanout/gate.ts";

const LIMITS = { heldBytes: 1_000, keptBytes: 1_000 };

function delta(after: number, over: Partial<Delta> = {}): Delta {
  return { attempt: 1, epoch: "e", after, frames: [], bytes: 100, order: 0, ...over };
}

function delivered(
  lastSeq: number,
  over: Partial<Parameters<Gate["delivered"]>[0]> = {},
): Parameters<Gate["delivered"]>[0] {
  return { lastSeq, attempt: 1, barrier: 0, settled: 0, ...over };
}

describe("the delta gate", () => {
  test("[GATE1] a delta waits for the durable event it follows", () => {
    const gate = new Gate(LIMITS, "e", delivered(5));
    const early = delta(7);
    expect(gate.offer(delta(5))).toBe("show");
    expect(gate.offer(early)).toBe("held");
    expect(gate.delivered(delivered(6))).toEqual([]);
    expect(gate.delivered(delivered(8))).toEqual([early]);
    expect(gate.delivered(delivered(9))).toEqual([]);
  });

  test("[GATE1] what is held is bounded: later deltas are dropped", () => {
    const gate = new Gate(LIMITS, "e", delivered(0));
    const verdicts = Array.from({ length: 12 }, () => gate.offer(delta(3)));
    expect(verdicts.filter((v) => v === "held")).toHaveLength(10);
    expect(verdicts.at(-1)).toBe("dropped");
    expect(gate.delivered(delivered(3))).toHaveLength(10);
  });

  test("[GATE2] an older attempt's deltas are dropped, held or new", () => {
    const gate = new Gate(LIMITS, "e", delivered(5));
    const zombie = delta(9);
    expect(gate.offer(zombie)).toBe("held");
    expect(gate.delivered(delivered(9, { attempt: 2, barrier: 6 }))).toEqual([]);
    expect(gate.offer(delta(9))).toBe("dropped");
    expect(gate.offer(delta(9, { attempt: 2 }))).toBe("show");
    expect(gate.kept.every((kept) => kept.attempt === 2)).toBe(true);
  });

  test("[GATE2] deltas from before a barrier are dropped, and those kept are forgotten", () => {
    const gate = new Gate(LIMITS, "e", delivered(5));
    gate.offer(delta(5));
    expect(gate.kept).toHaveLength(1);
    gate.delivered(delivered(6, { barrier: 6 }));
    expect(gate.kept).toEqual([]);
    expect(gate.offer(delta(5))).toBe("dropped");
    expect(gate.offer(delta(6))).toBe("show");
  });

  test("[GATE2] a delta of another incarnation, or without numbers, is dropped", () => {
    const gate = new Gate(LIMITS, "e", delivered(5));
    expect(gate.offer(delta(5, { epoch: "old" }))).toBe("dropped");
    expect(gate.offer(delta(Number.NaN))).toBe("dropped");
    expect(gate.offer(delta(5, { attempt: Number.NaN }))).toBe("dropped");
  });

  test("[GATE3] deltas are kept until a checkpoint settles them", () => {
    const gate = new Gate(LIMITS, "e", delivered(5));
    const [first, second] = [delta(5), delta(7)];
    gate.offer(first);
    gate.delivered(delivered(7));
    gate.offer(second);
    expect(gate.kept).toEqual([first, second]);
    gate.delivered(delivered(8, { settled: 6 }));
    expect(gate.kept).toEqual([second]);
    gate.delivered(delivered(9, { settled: 9 }));
    expect(gate.kept).toEqual([]);
    expect(gate.bytes).toBe(0);
  });

  test("[GATE3] what is kept is bounded: the oldest go", () => {
    const gate = new Gate(LIMITS, "e", delivered(0));
    const all = Array.from({ length: 25 }, () => delta(0));
    for (const each of all) gate.offer(each);
    expect(gate.kept).toEqual(all.slice(-10));
    expect(gate.bytes).toBe(1_000);
  });

  test("[GATE1] [GATE2] whatever the order of the lanes, nothing is shown before its event or after its barrier", () => {
    const master = seededRandom();
    for (let game = 0; game < 200; game += 1) {
      const random = randomOf(Math.floor(master.next() * 2 ** 32));
      const gate = new Gate(LIMITS, "e", delivered(0));
      let seq = 0;
      let attempt = 1;
      let barrier = 0;
      for (let step = 0; step < 60; step += 1) {
        const shown: Delta[] = [];
        if (random.chance(0.4)) {
          seq += random.between(1, 3);
          if (random.chance(0.15)) attempt += 1;
          const isBarrier = random.chance(0.2);
          if (isBarrier) barrier = seq;
          const settled = random.chance(0.3) ? seq : 0;
          shown.push(
            ...gate.delivered({ lastSeq: seq, attempt, barrier: isBarrier ? seq : 0, settled }),
          );
          expect(gate.kept.every((kept) => kept.after >= settled)).toBe(true);
        } else {
          const each = delta(Math.max(0, seq + random.between(-3, 3)), {
            attempt: random.between(1, attempt + 1),
          });
          if (gate.offer(each) === "show") shown.push(each);
        }
        for (const each of shown) {
          expect(each.after).toBeLessThanOrEqual(seq);
          expect(each.after).toBeGreaterThanOrEqual(barrier);
          expect(each.attempt).toBeGreaterThanOrEqual(attempt);
        }
        expect(gate.bytes).toBeLessThanOrEqual(LIMITS.heldBytes + LIMITS.keptBytes);
      }
    }
  });
});
