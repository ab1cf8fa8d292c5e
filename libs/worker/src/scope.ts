/** Durable operations: each is found by its key in what earlier attempts have stored, or done and stored. */
import { EventTooLarge } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { handled } from "./agent-lane.ts";
import type { RecordedToolCall, Scope, StepScope } from "./agent.ts";
import { asStored } from "./as-stored.ts";
import { AgentError, errorOf, failureOf, type Failure } from "./failure.ts";
import { OpenMessages, storedMessage } from "./message.ts";
import { operationId, Place } from "./operation-key.ts";
import { askApproval } from "./requests/approval.ts";
import { askInput } from "./requests/input.ts";
import { availableTools, callTools } from "./requests/tools.ts";
import type { CallSite, ScopeRun } from "./scope-run.ts";

interface Opened {
  readonly scope: Scope;
  readonly messages: OpenMessages;
}

/** The scope of the run itself. Its messages outlive takeovers: whole ones are kept, the others begin anew. */
export function runScope(run: ScopeRun): Scope {
  return openScope(run, new Place()).scope;
}

function openScope(run: ScopeRun, place: Place, stepId?: string): Opened {
  const { lane, done } = run;
  const messages = new OpenMessages();
  const within = stepId === undefined ? {} : { step_id: stepId };
  const here: CallSite = { place, stepId };

  const counted = async (event: NewEvent): Promise<void> => {
    const refusal = lane.refusal();
    if (refusal) return refusal;
    const { key, scope, n } = place.nextUnnamed("@emit");
    if (n <= done.emitted(scope)) return;
    await lane.append({ ...event, ...within, key });
  };

  const record = async ({ name, args, result }: RecordedToolCall): Promise<void> => {
    const refusal = lane.refusal();
    if (refusal) return refusal;
    const { key } = place.nextUnnamed("@tool");
    const held = done.toolCall(key);
    if (held?.status === "completed" || held?.status === "failed") return;
    const callId = held?.tool_call_id ?? operationId("tc", key);
    if (!held) {
      void lane.append({
        type: "tool_call.created",
        ...within,
        key,
        payload: {
          tool_call_id: callId,
          name,
          args: args ?? null,
          executor: "worker",
          requires_approval: false,
        },
      });
    }
    await lane.append({
      type: "tool_call.completed",
      ...within,
      payload: { tool_call_id: callId, result: result ?? null },
    });
  };

  const scope: Scope = {
    emit: (name, value) =>
      handled(counted({ type: "custom", payload: { name, value: value ?? null } })),
    setState: (patch) =>
      handled(counted({ type: "state.updated", payload: { patch: patch ?? null } })),
    // What a step spends, it spends again when it is done again. Code outside of steps is only executed
    // again to find its way, so there it is counted like everything else.
    usage: (payload) =>
      handled(
        stepId === undefined
          ? counted({ type: "usage.updated", payload })
          : lane.append({ type: "usage.updated", ...within, payload }).then(() => undefined),
      ),
    message: (options = {}) => {
      lane.check();
      const { key } = place.nextUnnamed("@message");
      if (done.hasMessage(key)) return storedMessage(lane);
      const messageId = operationId("msg", key, stepId === undefined ? "" : tryTag(run));
      return messages.open(lane, { key, messageId, stepId, options });
    },
    step: (name, body) => handled(runStep(run, place, { name, body, parent: stepId })),
    approval: (request) => handled(askApproval(run, here, request)),
    ask: (request) => handled(askInput(run, here, request)),
    inbox: {
      take: () => handled(Promise.reject(new AgentError("not_allowed", "not there yet"))),
      next: () => handled(Promise.reject(new AgentError("not_allowed", "not there yet"))),
    },
    tools: {
      available: availableTools(run),
      call: (calls, options = {}) => callTools(run, here, calls, options),
      record: (call) => handled(record(call)),
    },
  };
  return { scope, messages };
}

/** Tells this execution's try of a step from those of others. */
function tryTag({ attempt, execution }: ScopeRun): string {
  return execution === 1 ? `${attempt}` : `${attempt}.${execution}`;
}

interface StepRequest<T> {
  readonly name: string;
  readonly body: (step: StepScope) => Promise<T> | T;
  readonly parent: string | undefined;
}

async function runStep<T>(run: ScopeRun, place: Place, request: StepRequest<T>): Promise<T> {
  const { lane, gate } = run;
  const { name, parent } = request;
  const refusal = lane.refusal();
  if (refusal) return refusal;
  const { key } = place.next(name);
  const done = run.done.step(key);
  if (done?.status === "failed" && done.error) throw errorOf(done.error);
  // The stored form of what this very step once returned; only the author knows its type.
  if (done) return done.output as T;
  if (parent === undefined) await gate.enter(run.signal);
  try {
    const stepId = operationId("stp", key, tryTag(run));
    // Stored before the body runs: a worker that has lost the run cannot begin a step.
    await lane.append({
      type: "step.started",
      step_id: stepId,
      key,
      payload: {
        step_id: stepId,
        name,
        ...(parent === undefined ? {} : { parent_step_id: parent }),
      },
    });
    return await execute(run, new Place(key), stepId, request.body);
  } finally {
    if (parent === undefined) gate.leave();
  }
}

async function execute<T>(
  run: ScopeRun,
  place: Place,
  stepId: string,
  body: (step: StepScope) => Promise<T> | T,
): Promise<T> {
  const { lane } = run;
  const { scope, messages } = openScope(run, place, stepId);
  try {
    const output = asStored(await body({ ...scope, step_id: stepId, interrupted: [] }));
    await messages.endAll("stop");
    await lane.append({
      type: "step.completed",
      step_id: stepId,
      payload: { step_id: stepId, output },
    });
    return output as T;
  } catch (cause) {
    // A run that was stopped closes its steps itself, or leaves them to the next worker.
    lane.check();
    const error = stepFailure(cause);
    await messages.endAll("error");
    await lane.append({
      type: "step.failed",
      step_id: stepId,
      payload: { step_id: stepId, error },
    });
    throw cause instanceof AgentError ? cause : errorOf(error, cause);
  }
}

function stepFailure(cause: unknown): Failure {
  const tooLarge = cause instanceof EventTooLarge;
  return tooLarge
    ? { code: "output_too_large", message: cause.message, retryable: false }
    : failureOf(cause);
}
