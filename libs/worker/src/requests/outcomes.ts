/** The outcomes of a batch of calls, for the agent: by the log, so in one order however often it is executed. */
import type { RunState, ToolCallState } from "@throughline/protocol";
import type { ToolOutcome } from "../agent.ts";
import { failureOf, isGone } from "../failure.ts";
import type { ScopeRun } from "../scope-run.ts";
import { isSettled } from "./call-verdicts.ts";

/** A call as the agent made it. */
export interface Called {
  readonly index: number;
  readonly callId: string;
  readonly name: string;
  /** The caller's own id. */
  readonly id: string | undefined;
}

/**
 * Iterable any number of times, from the first outcome each. `broken` is aborted, with the error to throw,
 * when a call can have no outcome.
 *
 * Nothing is kept between two outcomes, so an iteration that is left early leaves nothing behind.
 */
export function outcomesOf(
  run: ScopeRun,
  batch: readonly Called[],
  broken: AbortSignal,
): AsyncIterable<ToolOutcome> {
  const byId = new Map(batch.map((called) => [called.callId, called]));
  const settledIn = (state: RunState): readonly ToolCallState[] =>
    state.tool_calls
      .filter((call) => byId.has(call.tool_call_id) && isSettled(call))
      .sort((a, b) => (a.outcome_seq ?? 0) - (b.outcome_seq ?? 0));
  return {
    async *[Symbol.asyncIterator]() {
      for (let told = 0; told < byId.size; told++) {
        const call = await run.ledger.until((state) => settledIn(state)[told], broken);
        const called = byId.get(call.tool_call_id);
        if (called) yield await outcomeOf(run, called, call);
      }
    },
  };
}

async function outcomeOf(
  run: ScopeRun,
  { index, id, name, callId: tool_call_id }: Called,
  call: ToolCallState,
): Promise<ToolOutcome> {
  const told = { index, id, tool_call_id, name };
  if (call.status === "failed") {
    const error = call.error ?? failureOf(new Error("the call failed"));
    return { ...told, ok: false, error };
  }
  try {
    return { ...told, ok: true, result: await run.whole(call.result) };
  } catch (error) {
    if (!isGone(error)) throw error;
    return { ...told, ok: false, error: failureOf(error) };
  }
}
