/** One step of an agent: skipped if it is done, else tried until it is, or has failed for good. */
import { EventTooLarge, ValueTooLarge } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import type { Scope, StepOptions, StepScope } from "./agent.ts";
import { interruptedTexts } from "./done-operations.ts";
import { AgentError, errorOf, failureOf, type Failure } from "./failure.ts";
import type { OpenMessages } from "./message.ts";
import { operationId, Place } from "./operation-key.ts";
import type { ScopeRun } from "./scope-run.ts";
import { askKey } from "./step-retry.ts";
import { asStored } from "./as-stored.ts";

export interface StepRequest<T> {
  readonly name: string;
  readonly body: (step: StepScope) => Promise<T> | T;
  readonly options: StepOptions;
  /** Id of the step that it is in. */
  readonly parent: string | undefined;
  /** Makes the operations of a try. */
  readonly open: (
    place: Place,
    stepId: string,
  ) => { readonly scope: Scope; readonly messages: OpenMessages };
}

const BACKOFF_MS = 1_000;
const LONGEST_BACKOFF_MS = 60_000;

interface Failed {
  readonly stepId: string;
  readonly error: Failure;
  readonly cause: AgentError;
}

type Outcome = { readonly ok: true; readonly output: unknown } | ({ readonly ok: false } & Failed);

export async function runStep<T>(run: ScopeRun, at: Place, request: StepRequest<T>): Promise<T> {
  const refusal = run.lane.refusal();
  if (refusal) return refusal;
  const { key } = at.next(request.name);
  const done = run.done.step(key);
  // The stored form of what this very step once returned; only the author knows its type.
  if (done?.status === "completed") return (await run.whole(done.output)) as T;
  let started = run.takeStarted(key);
  let failures = run.done.failures(key);
  let failed: Failed | undefined =
    done?.error && !started
      ? { stepId: done.step_id, error: done.error, cause: errorOf(done.error) }
      : undefined;
  for (let n = 1; ; n++) {
    if (failed) started = await beforeAgain(run, key, failed, { failures, request });
    const outcome = await attempt(run, { key, n, failures, started }, request);
    if (outcome.ok) return outcome.output as T;
    failed = outcome;
    failures += 1;
  }
}

interface Judged<T> {
  readonly failures: number;
  readonly request: StepRequest<T>;
}

/**
 * Resolves when a failed step is to be tried again: with the try's id if it was begun by `step.retry`.
 * Rejects with the failure if it is not.
 */
async function beforeAgain<T>(
  run: ScopeRun,
  key: string,
  failed: Failed,
  { failures, request }: Judged<T>,
): Promise<string | undefined> {
  const { backoffMs = BACKOFF_MS } = request.options;
  const next = afterFailure(failed.error, failures, request.options);
  let started: string | undefined;
  if (next === "again") {
    const backoff = Math.min(backoffMs * 2 ** (failures - 1), LONGEST_BACKOFF_MS);
    const over = run.gate.wait();
    try {
      await pause(failed.cause.retryAfterMs ?? backoff, run.signal);
    } finally {
      over();
    }
  } else if (next === "ask") {
    started = await asked(run, key, failed.stepId);
  } else {
    throw failed.cause;
  }
  // What failed inside of the try is tried again with it; what was done there is kept.
  run.refresh();
  return started;
}

/** What comes after the step's n-th failure. Pure. */
function afterFailure(
  error: Failure,
  failures: number,
  { retries = 0, onFailure = "throw" }: StepOptions,
): "again" | "ask" | "throw" {
  return error.retryable && failures <= retries ? "again" : onFailure;
}

/** Waits for `step.retry`, whose answer begins the next try; by the log, so that a takeover changes nothing. */
async function asked(run: ScopeRun, key: string, stepId: string): Promise<string> {
  // Remembered with the failure; only not by an agent that has come to ask since then.
  if (!Object.hasOwn(run.ledger.state.memory, askKey(stepId))) await run.lane.append(asks(stepId));
  const over = run.busy("input");
  try {
    return await run.ledger.until((state) => {
      const latest = state.steps.findLast((step) => step.key === key);
      return latest?.status === "running" ? latest.step_id : undefined;
    }, run.signal);
  } finally {
    over();
  }
}

function asks(stepId: string): NewEvent {
  return {
    type: "memory.updated",
    step_id: stepId,
    payload: { key: askKey(stepId), value: true },
  };
}

interface Try {
  readonly key: string;
  /** 1 for the execution's first. */
  readonly n: number;
  /** Of earlier tries, in all executions. */
  readonly failures: number;
  /** Id of a try whose `step.started` is stored already. */
  readonly started: string | undefined;
}

async function attempt<T>(
  run: ScopeRun,
  { key, n, failures, started }: Try,
  request: StepRequest<T>,
): Promise<Outcome> {
  const { gate, lane } = run;
  const { name, parent } = request;
  const stepId = started ?? operationId("stp", key, tryTag(run, n, parent));
  if (parent === undefined) await gate.enter(run.signal);
  try {
    if (started === undefined) {
      const inside = parent === undefined ? {} : { parent_step_id: parent };
      // Stored before the body runs: a worker that has lost the run cannot begin a step.
      await lane.append({
        type: "step.started",
        step_id: stepId,
        key,
        payload: { step_id: stepId, name, ...inside },
      });
    }
    return await execute(run, { key, stepId, failures }, request);
  } finally {
    if (parent === undefined) gate.leave();
  }
}

/**
 * Tells an execution's n-th try of a step from all others. Each try of the step around it counts its own:
 * without that one's id, what is tried again with it would take the place of what has failed.
 */
function tryTag({ attempt: by, execution }: ScopeRun, n: number, parent = ""): string {
  const within = parent === "" ? "" : ` ${parent}`;
  if (n > 1) return `${by}.${execution}.${n}${within}`;
  return execution === 1 ? `${by}${within}` : `${by}.${execution}${within}`;
}

async function execute<T>(
  run: ScopeRun,
  { key, stepId, failures }: Pick<Try, "key" | "failures"> & { readonly stepId: string },
  request: StepRequest<T>,
): Promise<Outcome> {
  const { lane } = run;
  const { scope, messages } = request.open(new Place(key), stepId);
  const interrupted = interruptedTexts(run.ledger.state, key);
  const end = (event: NewEvent): Promise<unknown> => lane.append({ ...event, step_id: stepId });
  try {
    const output = asStored(await request.body({ ...scope, step_id: stepId, interrupted }));
    await messages.endAll("stop");
    const kept = await run.keep(output);
    await end({ type: "step.completed", payload: { step_id: stepId, output: kept } });
    return { ok: true, output };
  } catch (cause) {
    // A run that was stopped closes its steps itself, or leaves them to the next worker.
    lane.check();
    const error = stepFailure(cause);
    await messages.endAll("error");
    // First: whoever sees the failure may answer it the same moment.
    if (afterFailure(error, failures + 1, request.options) === "ask")
      void lane.append(asks(stepId));
    await end({ type: "step.failed", payload: { step_id: stepId, error } });
    const thrown = cause instanceof AgentError ? cause : errorOf(error, cause);
    return { ok: false, stepId, error, cause: thrown };
  }
}

function stepFailure(cause: unknown): Failure {
  const tooLarge = cause instanceof EventTooLarge || cause instanceof ValueTooLarge;
  return tooLarge
    ? { code: "output_too_large", message: cause.message, retryable: false }
    : failureOf(cause);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason instanceof Error ? signal.reason : new Error("stopped"));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}
