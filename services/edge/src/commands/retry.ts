import { bodyHash, deriveRunId, type RunRef } from "@throughline/broker";
import { type CommandOf, commandVerdict, type RunState } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { authorised } from "./authorised.ts";
import { conflict, type Outcome, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";
import { type NewRun, started, storeRun } from "./start-run.ts";

/**
 * A finished run once more: a new run with the same agent, input, tools and options. Which completed
 * steps it keeps is its worker's matter; that the one to begin from is there is seen to here, where
 * the client still waits for an answer.
 */
export async function retryRun(
  services: CommandServices,
  principal: Principal,
  command: CommandOf<"run.retry">,
): Promise<Outcome> {
  const { id, session_id: session, run_id, payload } = command;
  const allowed = await authorised(services, principal, "run.start", session);
  if (!allowed.ok) return allowed;
  const { tenant, user } = principal;
  const own = { tenant, session, run: deriveRunId({ tenant, user, session, id }) };
  const before = await startedBefore(services, own, command);
  if (before !== undefined) return before;
  const found = await services.states.current({ tenant, session, run: run_id });
  const state = found?.state;
  if (state?.agent === undefined) return refusal("not_found", "the session has no such run");
  const verdict = commandVerdict(state.status, command.type);
  if (!verdict.ok) {
    const current = { status: state.status };
    return { ...refusal(verdict.code, "the run has not ended"), current };
  }
  const { from_step } = payload;
  if (from_step !== undefined && !state.steps.some((step) => step.step_id === from_step)) {
    return refusal("not_found", "the run has no such step");
  }
  return storeRun(services, principal, {
    id,
    session,
    hash: bodyHash({ type: command.type, session_id: session, run_id, payload }),
    payload: {
      ...beginningOf(state, state.agent),
      retry_of: run_id,
      ...(from_step === undefined ? {} : { from_step }),
    },
  });
}

/**
 * What the command's id has started already. Asked before the old run is looked at: that one may have
 * expired by the time of a retry, and a step that it never had is no reason to pass over a used id.
 * The state says all that the command does, and is there for longer than the hash of its body.
 */
async function startedBefore(
  services: CommandServices,
  own: RunRef,
  { run_id, payload }: CommandOf<"run.retry">,
): Promise<Outcome | undefined> {
  const found = await services.states.current(own);
  if (found === undefined) return undefined;
  const { retry_of, from_step } = found.state;
  const isSame = retry_of === run_id && from_step === payload.from_step;
  return isSame ? started(own.run, found.epoch, true) : conflict();
}

type Beginning = Pick<NewRun["payload"], "agent" | "input" | "attachments" | "tools" | "options">;

/** What the run was started with. Its options have the session's defaults of that time in them. */
function beginningOf(state: RunState, agent: string): Beginning {
  const { input, attachments, tools, options } = state;
  return {
    agent,
    input: input ?? null,
    ...(attachments === undefined ? {} : { attachments: attachments.map((one) => ({ ...one })) }),
    ...(tools.length === 0 ? {} : { tools: tools.map((tool) => ({ ...tool })) }),
    ...(Object.keys(options).length === 0 ? {} : { options }),
  };
}
