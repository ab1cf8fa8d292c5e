/** Inputs, on the agent's side: asked once, waited for by the log. */
import type { InputState, RunState } from "@throughline/protocol";
import type { InputRequest } from "../agent.ts";
import { inputFailure } from "../failure.ts";
import { operationId } from "../operation-key.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";

/** Rejects with RunStopped, or AgentError where the request is none. */
export async function askInput<T>(
  run: ScopeRun,
  { place, stepId }: CallSite,
  request: InputRequest<T>,
): Promise<T> {
  const refusal = run.lane.refusal();
  if (refusal) return refusal;
  const { key: first } = place.nextUnnamed("@input");
  for (let asked = 1; ; asked++) {
    const key = asked === 1 ? first : `${first}~${asked}`;
    const id = operationId("inp", key);
    const { content } = await run.inputs.join(id, () =>
      received(run, { id, key, stepId, request }),
    );
    const { parse } = request;
    // Without a parser the author has declared that any answer will do.
    if (parse === undefined) return content as T;
    try {
      return parse(content);
    } catch (error) {
      // It came while nobody could tell: between two workers, before the agent was here again.
      run.log.info({ err: error, input: id }, "an answer is of no use to the agent: it asks again");
    }
  }
}

interface Asking {
  readonly id: string;
  readonly key: string;
  readonly stepId: string | undefined;
  readonly request: InputRequest;
}

async function received(run: ScopeRun, asking: Asking): Promise<InputState> {
  const { id, request } = asking;
  const find = (state: RunState): InputState | undefined =>
    state.inputs.findLast((one) => one.input_id === id);
  const held = find(run.ledger.state);
  if (held?.status === "received") return held;
  const unset = run.checks.set(id, (content) => problemOf(request, content));
  const asked = held ? undefined : ask(run, asking);
  const heard = run.busy("input");
  try {
    await asked;
    return await run.ledger.until((state) => {
      const input = find(state);
      return input?.status === "received" ? input : undefined;
    }, run.signal);
  } finally {
    heard();
    // A paused run's answers are checked too.
    if (!run.signal.aborted) unset();
  }
}

/** In the parser's words. */
function problemOf({ parse }: InputRequest, content: unknown): string | undefined {
  try {
    parse?.(content);
    return undefined;
  } catch (error) {
    return inputFailure(error).message;
  }
}

async function ask(run: ScopeRun, { id, key, stepId, request }: Asking): Promise<void> {
  await run.lane.append({
    type: "input.requested",
    ...(stepId === undefined ? {} : { step_id: stepId }),
    key,
    payload: {
      input_id: id,
      prompt: request.prompt,
      ...(request.schema === undefined ? {} : { schema: { ...request.schema } }),
    },
  });
}
