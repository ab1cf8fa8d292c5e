/** What is next, what is there, what is missing, and where to go on. */
import { describe, expect, test } from "vitest";
import { Ledger, SESSION_MARGIN_MS, type Numbered } from "../src/subscription/ledger.ts";

const event = (run_id: string, seq: number, at: number = seq): Numbered => ({
  run_id,
  seq,
  cursor: `${seq}-${at}-x`,
});

describe("a run", () => {
  test("[CLI31] [CLI32] next, duplicate and hole", () => {
    const ledger = new Ledger("run", { from: "start" });
    ledger.record(event("r", 1), 0);
    ledger.record(event("r", 2), 0);
    expect([1, 2, 3, 4].map((seq) => ledger.judge(event("r", seq)))).toEqual([
      "duplicate",
      "duplicate",
      "next",
      "hole",
    ]);
  });

  test("[CLI32] from the start, the first event has to be number 1", () => {
    const ledger = new Ledger("run", { from: "start" });
    expect(ledger.judge(event("r", 2))).toBe("hole");
    expect(ledger.before("r")).toEqual({ from: "start" });
  });

  test("from a cursor, the first event is taken as it comes", () => {
    expect(new Ledger("run", { cursor: "9-9-x" }).judge(event("r", 10))).toBe("next");
    expect(new Ledger("run", { from: "latest" }).judge(event("r", 10))).toBe("next");
  });

  test("[CLI30] goes on behind the last event, and before the first from the place that the server named", () => {
    const ledger = new Ledger("run", { from: "latest" });
    expect(ledger.resume(0)).toEqual({ from: "latest" });
    ledger.started("0-77-x");
    expect(ledger.resume(0)).toEqual({ cursor: "0-77-x" });
    ledger.record(event("r", 5, 80), 0);
    expect(ledger.resume(0)).toEqual({ cursor: "5-80-x" });
  });

  test("[CLI36] after a gap the next event is taken as it comes, and then counts", () => {
    const ledger = new Ledger("run", { from: "start" });
    ledger.record(event("r", 1), 0);
    ledger.restart("0-90-x");
    expect(ledger.resume(0)).toEqual({ cursor: "0-90-x" });
    expect(ledger.judge(event("r", 7))).toBe("next");
    ledger.record(event("r", 7), 0);
    expect(ledger.judge(event("r", 9))).toBe("hole");
  });

  test("[CLI36] a snapshot counts as all events up to it", () => {
    const ledger = new Ledger("run", { from: "snapshot" });
    ledger.baseline(event("r", 40));
    expect([40, 41, 42].map((seq) => ledger.judge(event("r", seq)))).toEqual([
      "duplicate",
      "next",
      "hole",
    ]);
    expect(ledger.resume(0)).toEqual({ cursor: "40-40-x" });
  });
});

describe("a session", () => {
  test("[CLI31] [CLI32] each run counts for itself", () => {
    const ledger = new Ledger("session", { from: "start" });
    ledger.record(event("a", 1, 1), 0);
    ledger.record(event("b", 1, 2), 0);
    ledger.record(event("b", 2, 3), 0);
    expect(ledger.judge(event("a", 2))).toBe("next");
    expect(ledger.judge(event("a", 3))).toBe("hole");
    expect(ledger.judge(event("b", 2))).toBe("duplicate");
    expect(ledger.judge(event("c", 1))).toBe("next");
    expect(ledger.judge(event("c", 2))).toBe("hole");
    expect(ledger.before("a")).toEqual({ cursor: "1-1-x" });
    expect(ledger.before("c")).toEqual({ from: "start" });
  });

  test("[CLI33] resumes from a place that is at least the margin old", () => {
    const ledger = new Ledger("session", { from: "start" });
    ledger.started("0-0-x");
    for (let second = 1; second <= 20; second++) {
      ledger.record(event("a", second), second * 1_000);
      const resumed = ledger.resume(second * 1_000);
      const behind = second * 1_000 - SESSION_MARGIN_MS;
      const expected = behind < 1_000 ? "0-0-x" : event("a", behind / 1_000).cursor;
      expect(resumed).toEqual({ cursor: expected });
    }
  });

  test("[CLI33] keeps few samples, however many events there are", () => {
    const ledger = new Ledger("session", { from: "start" });
    for (let n = 1; n <= 10_000; n++) ledger.record(event("a", n), n);
    // Of 10 s, those of the margin and one before it.
    const resumed = ledger.resume(10_000);
    expect(resumed).toEqual({ cursor: event("a", 3_001).cursor });
  });

  test("a copy goes its own way", () => {
    const ledger = new Ledger("session", { from: "start" });
    ledger.record(event("a", 1), 0);
    const copy = ledger.clone();
    ledger.record(event("a", 2), 0);
    expect([copy.judge(event("a", 2)), ledger.judge(event("a", 2))]).toEqual(["next", "duplicate"]);
  });
});
