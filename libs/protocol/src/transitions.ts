/*
 * Run status × command. The edge refuses by it what can be refused without asking (a run that is not
 * there or has ended), the worker judges by it each stored command, and the documentation prints it.
 *
 * It speaks of the run alone. Where a command names a thing of the run (an approval, a call, a step),
 * "ok" means that this thing decides: `not_found`, `already_resolved`, `stale`, or the effect.
 */
import type { RunCommandType } from "./command-kinds.ts";
import type { ErrorCode } from "./error-codes.ts";
import type { DurableType } from "./events/catalogue.ts";
import type { RunStatus } from "./state/run-state.ts";

/** What happens: the first event that answers the command, and the rest in words. */
export interface Effect {
  readonly event: DurableType;
  readonly effect: string;
}

export type Transition = Effect | { readonly code: ErrorCode };

const NOT_FOUND = { code: "not_found" } as const;
const NOT_ALLOWED = { code: "not_allowed" } as const;
const ENDED = { code: "run_ended" } as const;

const CANCEL: Effect = { event: "run.cancelled", effect: "closes what is open, then ends the run" };
const INTERRUPT: Effect = { event: "run.interrupted", effect: "stops the current step" };
const RESUME: Effect = { event: "run.resumed", effect: "goes on" };
const QUEUE: Effect = { event: "input.received", effect: "waits in the inbox (`queued`)" };
const RETRY_STEP: Effect = { event: "step.started", effect: "does the failed step again" };
const DECIDE: Effect = { event: "approval.resolved", effect: "the first answer decides" };
const CLAIM: Effect = { event: "tool_call.status", effect: "claims the call, or renews the claim" };
const REPORT: Effect = {
  event: "tool_call.completed",
  effect: "or `tool_call.failed`: the first outcome counts",
};
const ANSWER: Effect = { event: "input.received", effect: "the first answer counts" };
const RETRY_RUN: Effect = {
  event: "run.queued",
  effect: "a new run that keeps the completed steps",
};

/** While a worker has the run and it is not paused. */
const ACTIVE: Readonly<Record<RunCommandType, Transition>> = {
  "run.cancel": CANCEL,
  "run.interrupt": INTERRUPT,
  "run.resume": NOT_ALLOWED,
  "run.continue": QUEUE,
  "run.retry": NOT_ALLOWED,
  "step.retry": RETRY_STEP,
  "approval.respond": DECIDE,
  "tool_call.claim": CLAIM,
  "tool_result.report": REPORT,
  "input.respond": ANSWER,
};

const OVER: Readonly<Record<RunCommandType, Transition>> = {
  "run.cancel": ENDED,
  "run.interrupt": ENDED,
  "run.resume": ENDED,
  "run.continue": ENDED,
  "run.retry": RETRY_RUN,
  "step.retry": ENDED,
  "approval.respond": ENDED,
  "tool_call.claim": ENDED,
  "tool_result.report": ENDED,
  "input.respond": ENDED,
};

export const TRANSITIONS: Readonly<
  Record<RunStatus, Readonly<Record<RunCommandType, Transition>>>
> = {
  absent: {
    "run.cancel": NOT_FOUND,
    "run.interrupt": NOT_FOUND,
    "run.resume": NOT_FOUND,
    "run.continue": NOT_FOUND,
    "run.retry": NOT_FOUND,
    "step.retry": NOT_FOUND,
    "approval.respond": NOT_FOUND,
    "tool_call.claim": NOT_FOUND,
    "tool_result.report": NOT_FOUND,
    "input.respond": NOT_FOUND,
  },
  // No worker has it yet, and nothing in it can be asked for or claimed. What steers the run as a whole
  // is stored, and the worker that takes it up finds it in the command log.
  queued: {
    "run.cancel": {
      event: "run.cancelled",
      effect: "before the agent runs, and also while no worker takes it up",
    },
    "run.interrupt": { event: "run.interrupted", effect: "when a worker takes it up" },
    "run.resume": NOT_ALLOWED,
    "run.continue": QUEUE,
    "run.retry": NOT_ALLOWED,
    "step.retry": NOT_FOUND,
    "approval.respond": NOT_FOUND,
    "tool_call.claim": NOT_FOUND,
    "tool_result.report": NOT_FOUND,
    "input.respond": NOT_FOUND,
  },
  running: ACTIVE,
  waiting_approval: ACTIVE,
  waiting_tools: ACTIVE,
  waiting_input: {
    ...ACTIVE,
    "run.continue": {
      event: "input.received",
      effect: "the agent sees it at once if it waits for its inbox, else `queued`",
    },
  },
  // Paused, not over: requests that the stopped step did not take with it can still be answered, and a
  // device that is executing a call must be able to keep its claim.
  interrupted: {
    ...ACTIVE,
    "run.interrupt": NOT_ALLOWED,
    "run.resume": RESUME,
    "run.continue": { event: "input.received", effect: "goes on with it, as by `run.resume`" },
    "step.retry": { event: "step.started", effect: "goes on with it, as by `run.resume`" },
  },
  completed: OVER,
  failed: OVER,
  cancelled: OVER,
};

/** Whether a run in this status takes such a command at all. */
export function commandVerdict(
  status: RunStatus,
  command: RunCommandType,
): { readonly ok: true } | { readonly ok: false; readonly code: ErrorCode } {
  const transition = TRANSITIONS[status][command];
  return "code" in transition ? { ok: false, code: transition.code } : { ok: true };
}
