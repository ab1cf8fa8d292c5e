/** Inputs, on the agent's side: asked once, waited for by the log. */
import type { InputRequest } from "../agent.ts";
import { AgentError } from "../failure.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";

export async function askInput<T>(
  _run: ScopeRun,
  _at: CallSite,
  request: InputRequest<T>,
): Promise<T> {
  throw new AgentError("not_allowed", `nobody can be asked yet: ${request.prompt}`);
}
