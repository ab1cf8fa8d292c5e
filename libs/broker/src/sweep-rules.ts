import type { FailureCode } from "@throughline/protocol";
import type { Job, Standing } from "./standing.ts";

/** A job as the sweep sees it. Times in ms since the epoch. */
export interface SweepJob extends Job {
  readonly queuedAt: number;
  readonly deadline: number;
}

export type SweepVerdict = Outcome | { readonly kind: "unbegun" };

/** `unbegun` is settled by asking whether the agent is offered. */
export type Outcome =
  /** The terminal is stored, or nothing of the run is left. */
  | { readonly kind: "over" }
  /** Give it back, to come again then. */
  | { readonly kind: "later"; readonly at: number }
  /** Keep it in hand and look again then. */
  | { readonly kind: "hold"; readonly until: number }
  | { readonly kind: "fail"; readonly code: FailureCode };

/** When the sweep first looks at a job. */
export function dueAt(job: SweepJob, queueTimeoutMs: number): number {
  return Math.min(job.queuedAt + queueTimeoutMs, job.deadline);
}

/**
 * Pure: what becomes of a job that is due. Whatever incarnation the unfinished events are of,
 * the deadline ends them: that is how a run whose job was lost is still bounded. A run that was begun has
 * `graceMs` more: its owner ends it at the deadline too, and knows more of how it stands.
 */
export function sweepVerdict(
  job: SweepJob,
  standing: Standing,
  now: number,
  graceMs: number,
): SweepVerdict {
  const { last } = standing;
  if (last?.end) return { kind: "over" };
  const stored = standing.job?.streamSeq === job.streamSeq && standing.job.epoch === job.epoch;
  // Without events, only the stored job itself counts: one that was stored anew comes by itself.
  if (!last && !stored) return { kind: "over" };
  const endsAt = last ? job.deadline + graceMs : job.deadline;
  if (now >= endsAt) return { kind: "fail", code: "deadline" };
  return last ? { kind: "later", at: endsAt } : { kind: "unbegun" };
}

/**
 * Pure: the answer to "unbegun". `absentSince` is when the agent was first found missing, without
 * having been seen since. One look is not enough: after an outage all announcements have lapsed,
 * and workers announce again one by one.
 */
export function unbegunVerdict(
  job: SweepJob,
  absentSince: number | undefined,
  now: number,
  times: { readonly queueTimeoutMs: number; readonly confirmMs: number },
): Outcome {
  if (absentSince === undefined) {
    return { kind: "later", at: Math.min(job.deadline, now + times.queueTimeoutMs) };
  }
  const confirmedAt = absentSince + times.confirmMs;
  if (now < confirmedAt) return { kind: "hold", until: Math.min(job.deadline, confirmedAt) };
  return { kind: "fail", code: "agent_unavailable" };
}

/** Agents found missing, so that a backlog of jobs for one of them waits for its confirmation once. */
export class Absences {
  readonly #confirmMs: number;
  readonly #seen: Map<string, { readonly since: number; lastLook: number }> = new Map();

  constructor(confirmMs: number) {
    this.#confirmMs = confirmMs;
  }

  /** Notes a look; returns since when the agent has been missing at every look, undefined when it is offered. */
  look(agent: string, offered: boolean, now: number): number | undefined {
    for (const [name, { lastLook }] of this.#seen) {
      // A look long ago says nothing about the time between.
      if (now - lastLook > 2 * this.#confirmMs) this.#seen.delete(name);
    }
    if (offered) {
      this.#seen.delete(agent);
      return undefined;
    }
    const held = this.#seen.get(agent);
    if (held) {
      held.lastLook = now;
      return held.since;
    }
    this.#seen.set(agent, { since: now, lastLook: now });
    return now;
  }
}
