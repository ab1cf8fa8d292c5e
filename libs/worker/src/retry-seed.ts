/** A repetition of a finished run begins with copies of what was completed there. Pure. */
import type { NewEvent, RunState, StepState } from "@throughline/protocol";
import { operationId } from "./operation-key.ts";

/** Under this a repetition remembers that it has its copies. */
export const SEEDED = "@retry_of";

/**
 * Copies of the old run's completed steps, up to `fromStep` in the order of the steps: with the same key
 * and output, so that the agent skips them. Steps that `fromStep` is part of are not copied, since it
 * would not be reached in them.
 */
export function seedEvents(old: RunState, fromStep: string | undefined): NewEvent[] {
  const kept = keptSteps(old, fromStep);
  const copies = new Map(
    kept.map((step) => [step.step_id, operationId("stp", step.key, `copy of ${old.run_id ?? ""}`)]),
  );
  return kept.flatMap((step): NewEvent[] => {
    const step_id = copies.get(step.step_id) ?? "";
    const parent = step.parent_step_id === undefined ? undefined : copies.get(step.parent_step_id);
    const { key, name, output } = step;
    return [
      {
        type: "step.started",
        step_id,
        key,
        payload: { step_id, name, ...(parent === undefined ? {} : { parent_step_id: parent }) },
      },
      {
        type: "step.completed",
        step_id,
        payload: { step_id, ...(output === undefined ? {} : { output }) },
      },
    ];
  });
}

type Kept = StepState & { readonly key: string };

function keptSteps(old: RunState, fromStep: string | undefined): Kept[] {
  const around = new Set<string>();
  for (let id = fromStep; id !== undefined; id = parentOf(old, id)) around.add(id);
  const end = old.steps.findIndex(({ step_id }) => step_id === fromStep);
  return old.steps
    .slice(0, end === -1 ? undefined : end)
    .filter(
      (step): step is Kept =>
        step.status === "completed" && step.key !== undefined && !around.has(step.step_id),
    );
}

function parentOf(state: RunState, id: string): string | undefined {
  return state.steps.find(({ step_id }) => step_id === id)?.parent_step_id;
}
