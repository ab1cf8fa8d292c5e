/** Gives a repetition of a finished run what was completed there, before its agent is executed. */
import type { Broker, RunRef } from "@throughline/broker";
import { finishedRun, patiently } from "./finished-run.ts";
import type { Log } from "./log.ts";
import { SEEDED, seedEvents } from "./retry-seed.ts";
import type { RunLog } from "./run-log.ts";

export interface SeedingOptions {
  readonly broker: Broker;
  readonly ref: RunRef;
  readonly runLog: RunLog;
  readonly log: Log;
}

/** Events of one append: with the outputs inline, a message holds at least so many. */
const PORTION = 50;

/**
 * Once in the run's life, whoever carries it on; what a worker that died here has copied already is not
 * copied again. Rejects with the signal's reason.
 */
export async function seedRetry(options: SeedingOptions, signal: AbortSignal): Promise<void> {
  const { broker, ref, runLog, log } = options;
  const { state } = runLog;
  if (state.retry_of === undefined || Object.hasOwn(state.memory, SEEDED)) return;
  const of = { ...ref, run: state.retry_of };
  const old = await patiently(() => finishedRun(broker, of), signal);
  if (!old) {
    log.warn(
      { retry_of: of.run },
      "the run to be repeated is not kept: this one begins at nothing",
    );
  }
  const there = new Map(state.steps.map(({ step_id, status }) => [step_id, status]));
  const events = (old ? seedEvents(old.state, state.from_step) : []).filter(
    ({ step_id = "", type }) =>
      !there.has(step_id) || (type === "step.completed" && there.get(step_id) !== "completed"),
  );
  for (let at = 0; at < events.length; at += PORTION) {
    await runLog.appendAll(events.slice(at, at + PORTION));
  }
  await runLog.append({
    type: "memory.updated",
    payload: { key: SEEDED, value: { run_id: of.run, kept: old !== undefined } },
  });
}
