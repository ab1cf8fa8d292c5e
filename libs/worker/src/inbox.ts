/**
 * Instructions that came by `run.continue`, each seen once. What was taken is remembered in the log, by
 * the place of the look (so that `run`, executed again, finds there what it found before) and, inside of
 * steps, by the try: a step that is done again takes again.
 */
import type { InboxItem, NewEvent, RunState } from "@throughline/protocol";
import type { Inbox, Instruction } from "./agent.ts";
import { handled } from "./agent-lane.ts";
import { AgentError } from "./failure.ts";
import type { CallSite, ScopeRun } from "./scope-run.ts";
import { unless } from "./within.ts";

const PREFIX = "@inbox/";

/** A look that was remembered: by the run itself, or by a step. */
export interface Look {
  readonly key: string;
  readonly stepId: string | undefined;
  /** Indexes in the inbox. */
  readonly taken: readonly number[];
  /** The event after which it looked; unknown of one that an older worker has remembered. */
  readonly after: number | undefined;
}

/** All that a run has remembered. */
export function looksOf(state: RunState): readonly Look[] {
  return Object.entries(state.memory).flatMap(([key, value]) => {
    if (!key.startsWith(PREFIX)) return [];
    const by = key.slice(PREFIX.length, key.lastIndexOf("#"));
    const taken = indexes(value);
    return [{ key, stepId: by === "" ? undefined : by, taken, after: lookedAfter(value) }];
  });
}

/** The same look in a copy of the step that took. */
export function lookCopy({ key, taken }: Look, stepId: string | undefined): NewEvent {
  const n = key.slice(key.lastIndexOf("#"));
  return {
    type: "memory.updated",
    ...(stepId === undefined ? {} : { step_id: stepId }),
    payload: { key: `${PREFIX}${stepId ?? ""}${n}`, value: { taken, after: 0 } },
  };
}

export function inboxOf(run: ScopeRun, { place, stepId }: CallSite): Inbox {
  const nextKey = (): string => {
    const { n } = place.nextUnnamed("@inbox");
    return stepId === undefined ? `${PREFIX}#${n}` : `${PREFIX}${stepId}#${n}`;
  };

  const remember = async (key: string, taken: readonly number[]): Promise<void> => {
    const within = stepId === undefined ? {} : { step_id: stepId };
    await run.lane.append({
      type: "memory.updated",
      ...within,
      payload: { key, value: { taken, after: run.ledger.state.seq } },
    });
  };

  const take = async (): Promise<readonly Instruction[]> => {
    const refusal = run.lane.refusal();
    if (refusal) return refusal;
    const key = nextKey();
    const before = run.taken.at(key, run.ledger.state);
    if (before) return before.flatMap((index) => itemsAt(run.ledger.state, index));
    // What was accepted may still be on its way here, and this may be the agent's last look.
    await unless(run.signal, run.drainCommands());
    const { state } = run.ledger;
    mustRun(state, stepId);
    const fresh = run.taken.reserve(state, stepId);
    await remember(key, fresh);
    return fresh.flatMap((index) => itemsAt(state, index));
  };

  const next = async (): Promise<Instruction> => {
    const refusal = run.lane.refusal();
    if (refusal) return refusal;
    const key = nextKey();
    const before = run.taken.at(key, run.ledger.state)?.[0];
    if (before !== undefined) return itemAt(run.ledger.state, before);
    const index = await waited(run, stepId);
    await remember(key, [index]);
    return itemAt(run.ledger.state, index);
  };

  return { take: () => handled(take()), next: () => handled(next()) };
}

async function waited(run: ScopeRun, stepId: string | undefined): Promise<number> {
  const look = (state: RunState): number | undefined => {
    mustRun(state, stepId);
    return run.taken.reserve(state, stepId, 1)[0];
  };
  const there = look(run.ledger.state);
  if (there !== undefined) return there;
  const over = run.awaitInbox();
  try {
    return await run.ledger.until(look, run.signal);
  } finally {
    over();
  }
}

/** Left behind by its step, a look would take what nobody is given then. */
function mustRun(state: RunState, stepId: string | undefined): void {
  if (stepId !== undefined && !isRunning(state, stepId)) {
    throw new AgentError("step_ended", "the step has ended that waited for its inbox");
  }
}

/** Which instructions were taken, in an execution. */
export class TakenItems {
  /** Taken here, and perhaps not stored yet: index → the step that took it. */
  readonly #reserved: Map<number, string | undefined> = new Map();

  /** What the look of that key took when it was there before. */
  at(key: string, state: RunState): readonly number[] | undefined {
    return Object.hasOwn(state.memory, key) ? indexes(state.memory[key]) : undefined;
  }

  /** Takes what nobody has taken, the oldest first. */
  reserve(
    state: RunState,
    stepId: string | undefined,
    limit: number = Infinity,
  ): readonly number[] {
    // All looks are gone through below: an agent that looks often mostly finds nothing.
    if (state.inbox.length === 0) return [];
    const taken = takenIndexes(state);
    for (const [index, by] of this.#reserved) if (counts(state, by)) taken.add(index);
    const fresh = [...state.inbox.keys()].filter((index) => !taken.has(index)).slice(0, limit);
    for (const index of fresh) this.#reserved.set(index, stepId);
    return fresh;
  }
}

/** What a step took counts while it runs and once it is completed; one that is done again takes again. */
function counts(state: RunState, stepId: string | undefined): boolean {
  if (stepId === undefined) return true;
  const step = state.steps.findLast(({ step_id }) => step_id === stepId);
  return step?.status === "completed" || step?.status === "running";
}

function isRunning(state: RunState, stepId: string): boolean {
  return state.steps.findLast(({ step_id }) => step_id === stepId)?.status === "running";
}

function takenIndexes(state: RunState): Set<number> {
  const taken = new Set<number>();
  for (const look of looksOf(state)) {
    if (!counts(state, look.stepId)) continue;
    for (const index of look.taken) taken.add(index);
  }
  return taken;
}

/** `{taken, after}`; older workers have remembered the bare list. */
function indexes(value: unknown): readonly number[] {
  const list: unknown =
    typeof value === "object" && value !== null && "taken" in value ? value.taken : value;
  return Array.isArray(list)
    ? list.filter((index): index is number => Number.isInteger(index))
    : [];
}

function lookedAfter(value: unknown): number | undefined {
  if (typeof value !== "object" || value === null || !("after" in value)) return undefined;
  return typeof value.after === "number" ? value.after : undefined;
}

function itemsAt(state: RunState, index: number): Instruction[] {
  const item = state.inbox[index];
  return item === undefined ? [] : [instructionOf(item)];
}

function itemAt(state: RunState, index: number): Instruction {
  const item = state.inbox[index];
  if (item === undefined) throw new RangeError(`the inbox has no item ${index}`);
  return instructionOf(item);
}

function instructionOf({ content, attachments, options, by }: InboxItem): Instruction {
  return {
    content,
    ...(attachments === undefined ? {} : { attachments }),
    ...(options === undefined ? {} : { options }),
    ...(by === undefined ? {} : { by }),
  };
}
