import { bodyHash } from "@throughline/broker";
import { type CommandOf, commandVerdict, type RunState } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { authorised } from "./authorised.ts";
import { type Outcome, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";
import { type NewRun, storeRun } from "./start-run.ts";

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
  const found = await services.states.current({ tenant: principal.tenant, session, run: run_id });
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
