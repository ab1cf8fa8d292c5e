/** `step.retry`: which failed steps are done again, and how that begins. Pure. */
import type { NewEvent, RunState, StepState } from "@throughline/protocol";
import { refused, type Sender } from "./answers.ts";
import { operationId } from "./operation-key.ts";

/** Under this the run remembers that a failed step waits for a word on it. */
export function askKey(stepId: string): string {
  return `@ask/${stepId}`;
}

/**
 * A failed step of a paused run is done again when the run goes on, and so is one that waits for it. Of
 * any other the agent has heard already, and has gone on without it.
 *
 * @param streamSeq of the command: makes the new try's id its own
 */
export function judgeStepRetry(
  stepId: string,
  streamSeq: number,
  state: RunState,
  sender: Sender,
): readonly NewEvent[] {
  const step = state.steps.findLast(({ step_id }) => step_id === stepId);
  if (!step) return [refused(sender, "not_found", { step_id: stepId })];
  const latest = state.steps.findLast(({ key }) => key === step.key) ?? step;
  const waits = state.status === "interrupted" || Object.hasOwn(state.memory, askKey(stepId));
  if (step.status !== "failed" || latest !== step || !waits || step.key === undefined) {
    return [refused(sender, "not_allowed", { status: latest.status })];
  }
  return [startedAgain(step, step.key, streamSeq, sender)];
}

function startedAgain(step: StepState, key: string, streamSeq: number, sender: Sender): NewEvent {
  const step_id = operationId("stp", key, `retry ${streamSeq}`);
  const { name, parent_step_id } = step;
  return {
    type: "step.started",
    step_id,
    key,
    reply_to: sender.id,
    reply_by: sender.user,
    payload: { step_id, name, ...(parent_step_id === undefined ? {} : { parent_step_id }) },
  };
}
