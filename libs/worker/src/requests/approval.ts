/** Approvals, on the agent's side: asked once, waited for by the log. */
import type { ApprovalDecision, ApprovalRequest } from "../agent.ts";
import { AgentError } from "../failure.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";

export async function askApproval(
  _run: ScopeRun,
  _at: CallSite,
  request: ApprovalRequest,
): Promise<ApprovalDecision> {
  throw new AgentError("not_allowed", `nobody can be asked to approve ${request.operation} yet`);
}
