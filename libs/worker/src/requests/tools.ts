/**
 * Tool calls, on the agent's side. A call is found by its key: it is made once, and its outcome, whoever
 * brought it, is the same in every execution.
 */
import { bodyHash } from "@throughline/broker";
import type { NewEvent, RunState, ToolCallState } from "@throughline/protocol";
import { handled } from "../agent-lane.ts";
import type { AvailableTool, Tool, ToolCall, ToolCallOptions, ToolOutcome } from "../agent.ts";
import { asStored } from "../as-stored.ts";
import { AgentError } from "../failure.ts";
import { operationId } from "../operation-key.ts";
import { isCopy } from "../retry-seed.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";
import { isSettled } from "./call-verdicts.ts";
import { type Call, failed, findCall, failureFor } from "./call.ts";
import { awaitClient } from "./client-call.ts";
import { outcomesOf } from "./outcomes.ts";
import { executeHere } from "./worker-call.ts";

/** A tool of the worker's own goes before a client's of the same name. */
export function availableTools(run: ScopeRun): readonly AvailableTool[] {
  const own = run.tools.map(({ name, description, input_schema }) => ({
    name,
    description,
    input_schema,
    executor: "worker" as const,
  }));
  const names = new Set(own.map(({ name }) => name));
  const clients = run.ledger.state.tools
    .filter(({ name }) => !names.has(name))
    .map(({ name, description = "", input_schema = { type: "object" } }) => ({
      name,
      description,
      input_schema,
      executor: "client" as const,
    }));
  return [...own, ...clients];
}

/** Begins all calls now. The iteration throws RunStopped, or AgentError for what is no call. */
export function callTools(
  run: ScopeRun,
  { place, stepId }: CallSite,
  calls: readonly ToolCall[],
  { timeoutMs }: ToolCallOptions,
): AsyncIterable<ToolOutcome> {
  const keys = calls.map(() => place.nextUnnamed("@tool").key);
  const [first] = keys;
  const batchId = first === undefined || keys.length < 2 ? undefined : operationId("bat", first);
  const broken = new AbortController();
  const batch = calls.map(({ name, args, id }, index) => {
    const { key, callId } = placeOf(run.ledger.state, {
      first: keys[index] ?? "",
      stepId,
      name,
      args,
    });
    const call: Call = { key, callId, stepId, batchId, name, args, timeoutMs };
    const settling = run.calls.join(callId, () => settle(run, call));
    handled(settling).catch((error: unknown) => broken.abort(error));
    return { index, callId, name, id };
  });
  return outcomesOf(run, batch, broken.signal);
}

interface Placing {
  readonly first: string;
  readonly stepId: string | undefined;
  readonly name: string;
  readonly args: unknown;
}

/**
 * Under which key a call is made. A step that has failed and is tried again keeps the results of its calls
 * and makes those again that had failed; what an interrupt has cut short stays as it is. A step that is
 * done again may want another tool in the same place, or ask the same one for something else: it must not be
 * given what the earlier call came to. After a takeover it is the call's place alone that counts.
 */
function placeOf(
  state: RunState,
  { first, stepId, name, args }: Placing,
): { readonly key: string; readonly callId: string } {
  for (let tries = 1; ; tries++) {
    const key = tries === 1 ? first : `${first}~${tries}`;
    const callId = operationId("tc", key);
    const held = findCall(state, callId);
    if (held === undefined) return { key, callId };
    if (held.name !== name || isMadeAgain(state, held, stepId)) continue;
    const mayDiffer = isCopy(state, held) || isOfFailedTry(state, held, stepId);
    if (!mayDiffer || isSameArgs(held, args)) return { key, callId };
  }
}

/**
 * What a repetition has copied answers that very call only: what comes before it may have been done anew,
 * and ask for something else. What is no JSON is refused as a call of its own.
 */
function isSameArgs(held: ToolCallState, args: unknown): boolean {
  try {
    return bodyHash(held.args ?? null) === bodyHash(asStored(args) ?? null);
  } catch (error) {
    if (error instanceof AgentError) return false;
    throw error;
  }
}

/** Was it made in another try of the step, which has failed? That the next one does as it did is not to be expected. */
function isOfFailedTry(state: RunState, held: ToolCallState, stepId: string | undefined): boolean {
  if (held.step_id === undefined || held.step_id === stepId) return false;
  const made = state.steps.findLast(({ step_id }) => step_id === held.step_id);
  return made?.status === "failed" && made.error?.code !== "interrupted";
}

/** Has a try of the step failed since, with the call? */
function isMadeAgain(state: RunState, held: ToolCallState, stepId: string | undefined): boolean {
  if (held.status !== "failed" || held.step_id === undefined || held.step_id === stepId) {
    return false;
  }
  const at = state.steps.findLastIndex(({ step_id }) => step_id === held.step_id);
  const made = state.steps[at];
  // The try that a takeover cut short has left the call to the next one, in which it has failed.
  const failed =
    made?.status === "superseded" && held.error?.code !== "interrupted"
      ? state.steps.slice(at + 1).find(({ key, step_id, status }) => {
          return key === made.key && step_id !== stepId && status === "failed";
        })
      : made;
  return failed?.status === "failed" && failed.error?.code !== "interrupted";
}

/** Resolves when the outcome is stored. */
async function settle(run: ScopeRun, call: Call): Promise<void> {
  const refusal = run.lane.refusal();
  if (refusal) return refusal;
  const held = findCall(run.ledger.state, call.callId);
  if (held && isSettled(held)) return;
  const tool = run.tools.find(({ name }) => name === call.name);
  // Who executes it was decided when it was made.
  const executor = held?.executor ?? executorOf(run.ledger.state, call.name, tool);
  if (!held) await run.lane.append(createdEvent(call, executor, tool));
  if (executor === "client") return awaitClient(run, call);
  if (tool) return executeHere(run, call, tool, held);
  await failed(run, call, failureFor("unknown_tool", `there is no tool ${call.name}`));
}

function executorOf(
  state: RunState,
  name: string,
  tool: Tool | undefined,
): ToolCallState["executor"] {
  return !tool && state.tools.some((offered) => offered.name === name) ? "client" : "worker";
}

function createdEvent(
  { key, callId, stepId, batchId, name, args }: Call,
  executor: ToolCallState["executor"],
  tool: Tool | undefined,
): NewEvent {
  return {
    type: "tool_call.created",
    ...(stepId === undefined ? {} : { step_id: stepId }),
    key,
    payload: {
      tool_call_id: callId,
      name,
      args: asStored(args) ?? null,
      executor,
      requires_approval: executor === "worker" && tool?.approval !== undefined,
      ...(batchId === undefined ? {} : { batch_id: batchId }),
    },
  };
}
