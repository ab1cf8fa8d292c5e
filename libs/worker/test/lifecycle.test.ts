import { describe, expect, it } from "vitest";
import { failed, type Ending } from "../src/ending.ts";
import { fenced, holdsRun, type Phase, stopped } from "../src/lifecycle.ts";

const cancel: Ending = {
  kind: "cancelled",
  command: { id: "c1", user: "ann", streamSeq: 7, reason: undefined },
};
const completed: Ending = { kind: "completed", output: 1 };
const deadline = failed("deadline", "late", "deadline");
const handback: Ending = { kind: "handback", why: "shutdown" };
const finishing = (ending: Ending, sealed = false): Phase => ({
  kind: "finishing",
  ending,
  sealed,
});

const LEFT: Phase[] = [
  { kind: "ended", terminal: "run.completed" },
  { kind: "fenced" },
  { kind: "handed back", why: "shutdown" },
];

describe("a run's life in a worker", () => {
  it("[HOST2] the first way out wins", () => {
    expect(stopped({ kind: "running", execution: 1 }, completed)).toEqual(finishing(completed));
    expect(stopped({ kind: "claimed" }, deadline)).toEqual(finishing(deadline));
    for (const later of [completed, deadline, handback]) {
      for (const first of [completed, deadline, cancel, handback]) {
        expect(stopped(finishing(first), later)).toEqual(finishing(first));
      }
    }
  });

  it("[CMDW6] a cancellation overrides an outcome that is not written yet, and none that is", () => {
    expect(stopped(finishing(completed), cancel)).toEqual(finishing(cancel));
    expect(stopped(finishing(deadline), cancel)).toEqual(finishing(cancel));
    expect(stopped(finishing(completed, true), cancel)).toEqual(finishing(completed, true));
    // Its next worker finds the command in the log.
    expect(stopped(finishing(handback), cancel)).toEqual(finishing(handback));
  });

  it("[HOST4] a run that has left stays away, and is not held", () => {
    for (const phase of LEFT) {
      expect(stopped(phase, completed)).toBe(phase);
      expect(stopped(phase, cancel)).toBe(phase);
      expect(fenced(phase)).toBe(phase);
      expect(holdsRun(phase)).toBe(false);
    }
    for (const phase of [
      { kind: "claimed" },
      { kind: "running", execution: 1 },
      finishing(completed),
    ] as Phase[]) {
      expect(holdsRun(phase)).toBe(true);
      expect(fenced(phase)).toEqual({ kind: "fenced" });
    }
  });
});
