import { describe, expect, it } from "vitest";
import { failed, type Ending } from "../src/ending.ts";
import {
  begun,
  fenced,
  holdsRun,
  interrupted,
  type Phase,
  resumed,
  stopped,
} from "../src/lifecycle.ts";

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

  it("[EXE4][EXE5] begins paused where it was paused, and each resumption is another execution", () => {
    const claimed: Phase = { kind: "claimed" };
    expect(begun(claimed, false)).toEqual({ kind: "running", execution: 1 });
    const paused = begun(claimed, true);
    expect(paused).toEqual({ kind: "paused", executions: 0 });
    expect(resumed(paused)).toEqual({ kind: "running", execution: 1 });
    expect(resumed(interrupted(resumed(paused)))).toEqual({ kind: "running", execution: 2 });
    // Cancelled, or handed back, before its first event was stored.
    expect(begun(finishing(cancel), false)).toEqual(finishing(cancel));
  });

  it("[EXE6][EXE7] is not paused once it is on its way out, and can leave from a pause", () => {
    for (const phase of [finishing(completed), ...LEFT]) {
      expect(interrupted(phase)).toBe(phase);
      expect(resumed(phase)).toBe(phase);
    }
    const paused: Phase = { kind: "paused", executions: 1 };
    expect(holdsRun(paused)).toBe(true);
    expect(stopped(paused, cancel)).toEqual(finishing(cancel));
    expect(stopped(paused, handback)).toEqual(finishing(handback));
    expect(fenced(paused)).toEqual({ kind: "fenced" });
  });
});
