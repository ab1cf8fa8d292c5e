/** Approvals, on the agent's side: asked once, waited for by the log, decided by their default in the end. */
import { bodyHash } from "@throughline/broker";
import type { ApprovalState, RunState } from "@throughline/protocol";
import type { ApprovalDecision, ApprovalRequest } from "../agent.ts";
import { operationId } from "../operation-key.ts";
import { asStored } from "../as-stored.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";
import { settled } from "./settled.ts";
import { expiredEvent } from "./verdicts.ts";

const EXPIRES_IN_MS = 15 * 60_000;

/** Rejects with RunStopped, or AgentError where the request is none. */
export async function askApproval(
  run: ScopeRun,
  { place, stepId }: CallSite,
  request: ApprovalRequest,
): Promise<ApprovalDecision> {
  const refusal = run.lane.refusal();
  if (refusal) return refusal;
  const { key } = place.nextUnnamed("@approval");
  const { operation, description, args } = request;
  const argsHash = bodyHash(args === undefined ? { operation, description } : asStored(args));
  // Of the arguments too: a decision is never taken for one about others, whatever the agent does when
  // it is executed again.
  const id = operationId("apr", key, argsHash);
  const approval = await run.approvals.join(id, () =>
    decided(run, { id, key, stepId, argsHash, request }),
  );
  return decisionOf(approval);
}

interface Asking {
  readonly id: string;
  readonly key: string;
  readonly stepId: string | undefined;
  readonly argsHash: string;
  readonly request: ApprovalRequest;
}

async function decided(run: ScopeRun, asking: Asking): Promise<ApprovalState> {
  const find = (state: RunState): ApprovalState | undefined =>
    state.approvals.findLast((one) => one.approval_id === asking.id);
  const held = find(run.ledger.state);
  if (held?.status === "resolved") return held;
  const asked = held ? undefined : request(run, asking);
  const heard = run.busy("approval");
  try {
    await asked;
    return await settled(run, {
      look: (state) => {
        const approval = find(state);
        return approval?.status === "resolved" ? approval : undefined;
      },
      // A millisecond later: an answer of this very one is in time.
      dueAt: (state) => (find(state)?.expires_at ?? Infinity) + 1,
      decide: async (state) => {
        const approval = find(state);
        if (approval) await run.lane.append(expiredEvent(approval));
      },
    });
  } finally {
    heard();
  }
}

async function request(run: ScopeRun, asking: Asking): Promise<void> {
  const { operation, description, risk = "medium", tool_call_id } = asking.request;
  const { expiresInMs = EXPIRES_IN_MS, default: fallback = "deny" } = asking.request;
  await run.lane.append({
    type: "approval.requested",
    ...(asking.stepId === undefined ? {} : { step_id: asking.stepId }),
    key: asking.key,
    payload: {
      approval_id: asking.id,
      ...(tool_call_id === undefined ? {} : { tool_call_id }),
      operation,
      description,
      risk_level: risk,
      args_hash: asking.argsHash,
      expires_at: Math.round(run.now() + expiresInMs),
      default: fallback,
    },
  });
}

function decisionOf(approval: ApprovalState): ApprovalDecision {
  const { decision, by, reason, default: fallback } = approval;
  const expired = decision === "expired";
  return {
    decision: decision === "allow" || (expired && fallback === "allow") ? "allow" : "deny",
    expired,
    ...(by === undefined ? {} : { by }),
    ...(reason === undefined ? {} : { reason }),
  };
}
