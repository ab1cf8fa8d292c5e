/** Gives a repetition of a finished run what was completed there, before its agent is executed. */
import type { Broker, RunRef } from "@throughline/broker";
import type { NewEvent, RunState } from "@throughline/protocol";
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

/** Events of one append: with the outputs inline, a message holds at least so many. Even: beginnings and ends come in pairs. */
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
  const events = old ? missing(state, seedEvents(old.state, state.from_step)) : [];
  for (let at = 0; at < events.length; at += PORTION) {
    await runLog.appendAll(events.slice(at, at + PORTION));
  }
  await runLog.append({
    type: "memory.updated",
    payload: {
      key: SEEDED,
      value: { run_id: of.run, kept: old !== undefined, upto: runLog.state.seq },
    },
  });
}

/** Without what a worker that died here has copied already. */
function missing(state: RunState, events: readonly NewEvent[]): NewEvent[] {
  const steps = new Map(state.steps.map(({ step_id, status }) => [step_id, status]));
  const calls = new Map(state.tool_calls.map((call) => [call.tool_call_id, call.status]));
  const approvals = new Map(state.approvals.map((one) => [one.approval_id, one.status]));
  const inputs = new Map(state.inputs.map(({ input_id, status }) => [input_id, status]));
  let instructions = 0;
  return events.filter((event) => {
    switch (event.type) {
      case "step.started":
        return !steps.has(event.payload.step_id);
      case "step.completed":
        return steps.get(event.payload.step_id) !== "completed";
      case "tool_call.created":
        return !calls.has(event.payload.tool_call_id);
      case "tool_call.completed":
        return calls.get(event.payload.tool_call_id) !== "completed";
      case "approval.requested":
        return !approvals.has(event.payload.approval_id);
      case "approval.resolved":
        return approvals.get(event.payload.approval_id) !== "resolved";
      case "input.requested":
        return !inputs.has(event.payload.input_id);
      case "input.received":
        // No command is looked at before the copies are there: whatever the inbox holds is one of them.
        return event.payload.input_id === undefined
          ? ++instructions > state.inbox.length
          : inputs.get(event.payload.input_id) !== "received";
      case "memory.updated":
        return !Object.hasOwn(state.memory, event.payload.key);
      default:
        return true;
    }
  });
}
