/**
 * A repetition of a finished run begins with copies of what was completed there: steps, tool calls
 * between them, answers of people and instructions, so that nothing that is kept is done, or asked for,
 * twice. Pure.
 */
import type {
  InboxItem,
  NewEvent,
  RunState,
  StepState,
  ToolCallState,
} from "@throughline/protocol";
import { lookCopy, looksOf } from "./inbox.ts";
import { operationId } from "./operation-key.ts";

/** Under this a repetition remembers that it has its copies, and where they end (`upto`, a seq). */
export const SEEDED = "@retry_of";

/** Whether the call was completed in the run that this one repeats. */
export function isCopy({ memory }: RunState, { outcome_seq }: ToolCallState): boolean {
  const seeded: unknown = Object.hasOwn(memory, SEEDED) ? memory[SEEDED] : undefined;
  if (typeof seeded !== "object" || seeded === null || !("upto" in seeded)) return false;
  return typeof seeded.upto === "number" && (outcome_seq ?? Infinity) <= seeded.upto;
}

/**
 * Copies of the old run's completed steps, up to `fromStep` in the order of the steps: with the same key
 * and output, so that the agent skips them. Steps that `fromStep` is part of are not copied, since it
 * would not be reached in them. Of what was done outside of the kept steps, what had come to its end
 * before `fromStep` began.
 */
export function seedEvents(old: RunState, fromStep: string | undefined): NewEvent[] {
  const steps = keptSteps(old, fromStep);
  const copyOf = new Map(
    steps.map((step) => [
      step.step_id,
      operationId("stp", step.key, `copy of ${old.run_id ?? ""}`),
    ]),
  );
  const kept: Kept = { old, cut: cutOf(old, fromStep), steps, copyOf };
  const calls = callCopies(kept);
  const pairs = [
    ...stepCopies(kept),
    ...calls,
    ...approvalCopies(kept, calls),
    ...inputCopies(kept),
  ];
  return [
    // As they were: who watches sees the old run's order.
    ...pairs.toSorted((a, b) => a.at - b.at).flatMap(({ events }) => events),
    ...instructionCopies(kept),
  ];
}

interface Kept {
  readonly old: RunState;
  /** What came to its end at this seq or later is not kept. */
  readonly cut: number;
  readonly steps: readonly KeptStep[];
  /** Old step → its copy. */
  readonly copyOf: ReadonlyMap<string, string>;
}

type KeptStep = StepState & { readonly key: string };

/** A beginning and its end. */
interface Pair {
  /** Its place in the old log. */
  readonly at: number;
  readonly events: readonly [NewEvent, NewEvent];
}

/** Of a step whose place an older worker has not noted it can't be told what was done before it: nothing is kept. */
function cutOf(old: RunState, fromStep: string | undefined): number {
  const from = old.steps.find(({ step_id }) => step_id === fromStep);
  return from === undefined ? Infinity : (from.started_seq ?? 0);
}

function keptSteps(old: RunState, fromStep: string | undefined): KeptStep[] {
  const around = new Set<string>();
  for (let id = fromStep; id !== undefined; id = parentOf(old, id)) around.add(id);
  const end = old.steps.findIndex(({ step_id }) => step_id === fromStep);
  return old.steps
    .slice(0, end === -1 ? undefined : end)
    .filter(
      (step): step is KeptStep =>
        step.status === "completed" && step.key !== undefined && !around.has(step.step_id),
    );
}

function parentOf(state: RunState, id: string): string | undefined {
  return state.steps.find(({ step_id }) => step_id === id)?.parent_step_id;
}

function stepCopies({ steps, copyOf }: Kept): Pair[] {
  return steps.map(({ step_id: id, parent_step_id, key, name, output, started_seq = 0 }) => {
    const step_id = copyOf.get(id) ?? "";
    const parent = parent_step_id === undefined ? undefined : copyOf.get(parent_step_id);
    const inside = parent === undefined ? {} : { parent_step_id: parent };
    const result = output === undefined ? {} : { output };
    return {
      at: started_seq,
      events: [
        { type: "step.started", step_id, key, payload: { step_id, name, ...inside } },
        { type: "step.completed", step_id, payload: { step_id, ...result } },
      ],
    };
  });
}

/** Those of a kept step stay behind it: its output is all that the agent sees of them. */
function isInKept({ old, steps }: Kept, stepId: string | undefined): boolean {
  if (stepId === undefined) return false;
  const key = old.steps.findLast(({ step_id }) => step_id === stepId)?.key;
  return key !== undefined && steps.some((step) => step.key === key);
}

/**
 * Completed ones; those that had failed are made again. Not as part of a step: the one that made them is
 * done anew and finds them by their keys.
 */
function callCopies(kept: Kept): Pair[] {
  const places = new Places();
  return kept.old.tool_calls.flatMap((call): Pair[] => {
    const { key, status, outcome_seq: at = 0, result, ...made } = call;
    if (status !== "completed" || key === undefined || at >= kept.cut) return [];
    if (isInKept(kept, call.step_id)) return [];
    const place = places.next(key);
    const { name, args, executor, requires_approval, batch_id } = made;
    const tool_call_id = operationId("tc", place);
    const batch = batch_id === undefined ? {} : { batch_id };
    const asked = { tool_call_id, name, args: args ?? null, executor, requires_approval, ...batch };
    return [
      {
        at,
        events: [
          { type: "tool_call.created", key: place, payload: asked },
          { type: "tool_call.completed", payload: { tool_call_id, result: result ?? null } },
        ],
      },
    ];
  });
}

/** Places of later tries (`key~2`) are taken anew from the first: what had failed there is not copied. */
class Places {
  readonly #taken: Map<string, number> = new Map();

  next(key: string): string {
    const first = firstPlace(key);
    const n = (this.#taken.get(first) ?? 0) + 1;
    this.#taken.set(first, n);
    return n === 1 ? first : `${first}~${n}`;
  }
}

function firstPlace(key: string): string {
  return key.replace(/~\d+$/, "");
}

/**
 * Decisions of people that something kept came after. Where nothing did, what was allowed was not done
 * to its end, and is asked about again; so is a call that is made again.
 */
function approvalCopies(kept: Kept, calls: readonly Pair[]): Pair[] {
  const last = Math.max(
    0,
    ...kept.steps.map(({ started_seq = 0 }) => started_seq),
    ...calls.map(({ at }) => at),
  );
  return kept.old.approvals.flatMap((approval): Pair[] => {
    const { approval_id, key, decision, by, reason, outcome_seq: at = Infinity } = approval;
    if (key === undefined || approval.tool_call_id !== undefined || by === undefined) return [];
    if (decision !== "allow" && decision !== "deny") return [];
    if (at >= kept.cut || at > last || reason === "interrupted") return [];
    if (isInKept(kept, approval.step_id)) return [];
    const {
      operation,
      description,
      risk_level,
      args_hash,
      expires_at,
      default: fallback,
    } = approval;
    const why = reason === undefined ? {} : { reason };
    return [
      {
        at,
        events: [
          {
            type: "approval.requested",
            key,
            payload: {
              approval_id,
              operation,
              description,
              risk_level,
              args_hash,
              expires_at,
              default: fallback,
            },
          },
          { type: "approval.resolved", payload: { approval_id, decision, by, ...why } },
        ],
      },
    ];
  });
}

/** Of several answers in one place (the agent asks again for what it can't use) the last one is of use. */
function inputCopies(kept: Kept): Pair[] {
  const copies = new Map<string, Pair>();
  for (const input of kept.old.inputs) {
    const { key, prompt, schema, content, by, event_id } = input;
    const at = seqOf(event_id);
    if (input.status !== "received" || key === undefined || at >= kept.cut) continue;
    if (isInKept(kept, input.step_id)) continue;
    const place = firstPlace(key);
    const input_id = operationId("inp", place);
    const form = schema === undefined ? {} : { schema };
    const who = by === undefined ? {} : { by };
    copies.set(place, {
      at,
      events: [
        { type: "input.requested", key: place, payload: { input_id, prompt, ...form } },
        { type: "input.received", payload: { input_id, content: content ?? null, ...who } },
      ],
    });
  }
  return [...copies.values()];
}

/**
 * What had come by then, in the same places of the inbox, and which of it the kept part had taken. What
 * nobody took, or a step that is done again, can be taken anew.
 */
function instructionCopies({ old, cut, copyOf }: Kept): NewEvent[] {
  const looks = looksOf(old).filter(({ stepId, after }) =>
    stepId === undefined ? cut === Infinity || (after ?? Infinity) < cut : copyOf.has(stepId),
  );
  const came = old.inbox.filter(({ event_id }) => seqOf(event_id) < cut).length;
  const items = Math.max(came, ...looks.flatMap(({ taken }) => taken.map((index) => index + 1)));
  return [
    ...old.inbox.slice(0, items).map(instructionCopy),
    ...looks.map((look) =>
      lookCopy(look, look.stepId === undefined ? undefined : copyOf.get(look.stepId)),
    ),
  ];
}

function instructionCopy({ content, attachments, options, by, queued }: InboxItem): NewEvent {
  return {
    type: "input.received",
    payload: {
      content: content ?? null,
      ...(attachments === undefined ? {} : { attachments: attachments.map((one) => ({ ...one })) }),
      ...(options === undefined ? {} : { options: { ...options } }),
      ...(by === undefined ? {} : { by }),
      queued,
    },
  };
}

/** An `event_id` is the run's id and the event's seq. */
function seqOf(eventId: string): number {
  return Number(eventId.slice(eventId.lastIndexOf(".") + 1));
}
