/*
 * What a run waits for from outside: tool calls, approvals, inputs. The first outcome of each stands.
 *
 * Fields are taken over one by one, here and in all handlers: a newer version's would otherwise be in the
 * states of those who reduce what they receive, and not in those of workers, whose schemas leave them out.
 */
import type { DurableEvent } from "../events/catalogue.ts";
import { changed, compact, placed } from "./list.ts";
import type { ApprovalState, InboxItem, InputState, RunState, ToolCallState } from "./run-state.ts";

export function onToolCallCreated(
  state: RunState,
  event: DurableEvent<"tool_call.created">,
): RunState {
  const { tool_call_id, name, args, executor, requires_approval, batch_id } = event.payload;
  const call: ToolCallState = compact({
    tool_call_id,
    name,
    args,
    executor,
    requires_approval,
    batch_id,
    event_id: event.event_id,
    step_id: event.step_id,
    key: event.key,
    status: "pending" as const,
  });
  return { ...state, tool_calls: placed(state.tool_calls, "tool_call_id", call) };
}

export function onToolCallStatus(
  state: RunState,
  event: DurableEvent<"tool_call.status">,
): RunState {
  const { tool_call_id, status, claim_id, lease_ms, by } = event.payload;
  return withOpenCall(state, tool_call_id, ({ claim, ...call }) => {
    if (status === "pending") return { ...call, status };
    const expires_at = lease_ms === undefined ? undefined : event.ts + lease_ms;
    const held = claim_id === undefined ? claim : compact({ claim_id, by, expires_at });
    return compact({ ...call, status, claim: held });
  });
}

export function onToolCallCompleted(
  state: RunState,
  event: DurableEvent<"tool_call.completed">,
): RunState {
  const { tool_call_id, result } = event.payload;
  return withOpenCall(state, tool_call_id, (call) => ({
    ...call,
    status: "completed",
    result,
    outcome_seq: event.seq,
  }));
}

export function onToolCallFailed(
  state: RunState,
  event: DurableEvent<"tool_call.failed">,
): RunState {
  const { tool_call_id, error } = event.payload;
  return withOpenCall(state, tool_call_id, (call) => ({
    ...call,
    status: "failed",
    error,
    outcome_seq: event.seq,
  }));
}

export function onApprovalRequested(
  state: RunState,
  event: DurableEvent<"approval.requested">,
): RunState {
  const { approval_id, tool_call_id, operation, description } = event.payload;
  const { risk_level, args_hash, expires_at, default: fallback } = event.payload;
  const approval: ApprovalState = compact({
    approval_id,
    tool_call_id,
    operation,
    description,
    risk_level,
    args_hash,
    expires_at,
    default: fallback,
    event_id: event.event_id,
    step_id: event.step_id,
    key: event.key,
    status: "open" as const,
  });
  return { ...state, approvals: placed(state.approvals, "approval_id", approval) };
}

export function onApprovalResolved(
  state: RunState,
  event: DurableEvent<"approval.resolved">,
): RunState {
  const { approval_id, decision, by, reason } = event.payload;
  const approvals = changed(state.approvals, "approval_id", approval_id, (approval) =>
    approval.status === "open"
      ? compact({
          ...approval,
          status: "resolved" as const,
          decision,
          by,
          reason,
          outcome_seq: event.seq,
        })
      : approval,
  );
  return { ...state, approvals };
}

export function onInputRequested(
  state: RunState,
  event: DurableEvent<"input.requested">,
): RunState {
  const { input_id, prompt, schema } = event.payload;
  const input: InputState = compact({
    input_id,
    prompt,
    schema,
    event_id: event.event_id,
    step_id: event.step_id,
    key: event.key,
    status: "open" as const,
  });
  return { ...state, inputs: placed(state.inputs, "input_id", input) };
}

export function onInputReceived(state: RunState, event: DurableEvent<"input.received">): RunState {
  const { input_id, content, by, attachments, options, queued } = event.payload;
  if (input_id !== undefined) {
    const inputs = changed(state.inputs, "input_id", input_id, (input) =>
      input.status === "open"
        ? compact({ ...input, status: "received" as const, content, by })
        : input,
    );
    return { ...state, inputs };
  }
  const item: InboxItem = compact({
    event_id: event.event_id,
    content,
    attachments,
    options,
    by,
    queued: queued ?? false,
  });
  return { ...state, inbox: [...state.inbox, item] };
}

function withOpenCall(
  state: RunState,
  id: string,
  change: (call: ToolCallState) => ToolCallState,
): RunState {
  const calls = changed(state.tool_calls, "tool_call_id", id, (call) =>
    call.status === "completed" || call.status === "failed" ? call : change(call),
  );
  return { ...state, tool_calls: calls };
}
