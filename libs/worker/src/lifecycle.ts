/**
 * A run in a worker's hands, as one value. Pure.
 *
 *                ┌─────────┐
 *                ▼         │
 *   claimed ──▶ running ──▶ paused ──┐                 an interrupt, and what resumes the run
 *      │           │                 ▼
 *      ├───────────┴───────▶ finishing ──▶ ended        the terminal is stored
 *      │                         ├───────▶ handed back  another worker goes on
 *      └─────────────────────────┴───────▶ fenced       another worker has it already
 */
import type { TerminalType } from "@throughline/protocol";
import type { Ending } from "./ending.ts";

export type Phase =
  /** Nothing of this attempt is stored yet. */
  | { readonly kind: "claimed" }
  /** The agent is executed, for the n-th time in this attempt, or will be as soon as the last one lets go. */
  | { readonly kind: "running"; readonly execution: number }
  /** Interrupted: the agent was stopped, after so many executions. What is stored next is the answer to a command. */
  | { readonly kind: "paused"; readonly executions: number }
  /** The agent's way to the log is cut; what is left is ours to write. `sealed`: the terminal is appended. */
  | { readonly kind: "finishing"; readonly ending: Ending; readonly sealed: boolean }
  | { readonly kind: "ended"; readonly terminal: TerminalType }
  | { readonly kind: "fenced" }
  | { readonly kind: "handed back"; readonly why: string };

/** Does this worker still write to the run? What owner checks are answered with. */
export function holdsRun(phase: Phase): boolean {
  switch (phase.kind) {
    case "claimed":
    case "running":
    case "paused":
    case "finishing":
      return true;
    case "ended":
    case "fenced":
    case "handed back":
      return false;
  }
}

/** The run is neither in the hands of another worker nor on its way out of this one's. */
export function isLive(
  phase: Phase,
): phase is Extract<Phase, { readonly kind: "running" | "paused" }> {
  return phase.kind === "running" || phase.kind === "paused";
}

/** The attempt's first event is stored. A run that was interrupted stays so, whoever takes it over. */
export function begun(phase: Phase, interrupted: boolean): Phase {
  if (phase.kind !== "claimed") return phase;
  return interrupted ? { kind: "paused", executions: 0 } : { kind: "running", execution: 1 };
}

export function interrupted(phase: Phase): Phase {
  return phase.kind === "running" ? { kind: "paused", executions: phase.execution } : phase;
}

export function resumed(phase: Phase): Phase {
  return phase.kind === "paused" ? { kind: "running", execution: phase.executions + 1 } : phase;
}

/**
 * The first way out wins, with one exception: a cancellation that was accepted overrides an outcome that
 * is not written yet. A run that is handed back is not cancelled here; its next worker finds the command.
 */
export function stopped(phase: Phase, ending: Ending): Phase {
  switch (phase.kind) {
    case "claimed":
    case "running":
    case "paused":
      return { kind: "finishing", ending, sealed: false };
    case "finishing": {
      const overridable = phase.ending.kind === "completed" || phase.ending.kind === "failed";
      if (phase.sealed || ending.kind !== "cancelled" || !overridable) return phase;
      return { kind: "finishing", ending, sealed: false };
    }
    case "ended":
    case "fenced":
    case "handed back":
      return phase;
  }
}

/** Another attempt has written: from any phase in which we believed to hold the run. */
export function fenced(phase: Phase): Phase {
  return holdsRun(phase) ? { kind: "fenced" } : phase;
}

/** How a run left this worker. */
export type RunOutcome = "completed" | "failed" | "cancelled" | "fenced" | "handed_back";

const BY_TERMINAL = {
  "run.completed": "completed",
  "run.failed": "failed",
  "run.cancelled": "cancelled",
} as const satisfies Record<TerminalType, RunOutcome>;

export function outcomeOf(phase: Phase): RunOutcome {
  if (phase.kind === "ended") return BY_TERMINAL[phase.terminal];
  return phase.kind === "fenced" ? "fenced" : "handed_back";
}
