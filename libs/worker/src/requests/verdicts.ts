/**
 * What an answer to one of a run's requests (an approval, an input, a client-side tool call) does. Pure.
 * The first answer counts, and every answer gets one: its effect or `command.rejected`.
 */
import type {
  ApprovalState,
  CommandOf,
  InputState,
  NewEvent,
  RunState,
} from "@throughline/protocol";
import { answers, type Asked, rejected, within } from "./answer.ts";
import { judgeClaim, judgeReport } from "./call-verdicts.ts";

/** Commands that name a request of the run. */
export type RequestCommand = CommandOf<
  "approval.respond" | "tool_call.claim" | "tool_result.report" | "input.respond"
>;

export interface Sender {
  /** Whose command it is; "" where an edge did not say. */
  readonly user: string;
  /** When an edge took the command, in ms since the epoch; 0 or absent where that is not known. */
  readonly at?: number;
}

/** Says what is wrong with an input's content, or nothing. Only the agent that asked knows. */
export type InputCheck = (inputId: string, content: unknown) => string | undefined;

/**
 * `state`: as of everything that was decided before. `now`: ms since the epoch by the worker's clock.
 * The events are to be stored in one go; the command's watermark goes on the last.
 */
export function judge(
  command: RequestCommand,
  sender: Sender,
  state: RunState,
  now: number,
  check: InputCheck = () => undefined,
): readonly NewEvent[] {
  const asked = askedBy(command, sender, now);
  switch (command.type) {
    case "approval.respond":
      return judgeApproval(command, asked, state);
    case "input.respond":
      return [judgeInput(command, asked, state, check)];
    case "tool_call.claim":
      return [judgeClaim(command.payload, asked, state)];
    case "tool_result.report":
      return judgeReport(command.payload, asked, state);
  }
}

function askedBy(command: RequestCommand, { user, at = 0 }: Sender, now: number): Asked {
  // An event with an empty user would not be legal, and the run's log unreadable.
  return { id: command.id, by: user || "unknown", made: at > 0 ? Math.min(at, now) : now };
}

function judgeApproval(
  { payload, reply_to }: CommandOf<"approval.respond">,
  asked: Asked,
  state: RunState,
): readonly NewEvent[] {
  const { approval_id, decision, args_hash, reason } = payload;
  const approval = state.approvals.find((one) => one.approval_id === approval_id);
  if (approval === undefined) {
    return [rejected(asked, "not_found", "the run has not asked for this approval")];
  }
  if (approval.status === "resolved") return [alreadyDecided(asked, approval)];
  // Before all else, so that what is wrong with a late answer does not hide that it is late.
  if (asked.made > approval.expires_at) {
    return [expiredEvent(approval), alreadyDecided(asked, { ...approval, decision: "expired" })];
  }
  const { event_id } = approval;
  const wrongRequest = reply_to !== undefined && reply_to !== event_id;
  if (wrongRequest || (args_hash !== undefined && args_hash !== approval.args_hash)) {
    const text = wrongRequest
      ? "reply_to is not the request's event"
      : "args_hash is not the request's: the arguments are others";
    const current = { approval_id, event_id, args_hash: approval.args_hash };
    return [rejected(asked, "stale", text, current)];
  }
  return [
    {
      type: "approval.resolved",
      ...answers(asked),
      ...within(approval),
      payload: {
        approval_id,
        decision,
        by: asked.by,
        ...(reason === undefined ? {} : { reason }),
      },
    },
  ];
}

/** Nobody answered in time: the request's default holds. */
export function expiredEvent(approval: ApprovalState): NewEvent {
  const { approval_id } = approval;
  return {
    type: "approval.resolved",
    ...within(approval),
    payload: { approval_id, decision: "expired" },
  };
}

function alreadyDecided(asked: Asked, approval: ApprovalState): NewEvent {
  const { approval_id, decision, by, reason, default: fallback } = approval;
  const current = {
    approval_id,
    decision,
    ...(decision === "expired" ? { default: fallback } : {}),
    ...(by === undefined ? {} : { by }),
    ...(reason === undefined ? {} : { reason }),
  };
  return rejected(asked, "already_resolved", "the approval was decided before", current);
}

function judgeInput(
  { payload }: CommandOf<"input.respond">,
  asked: Asked,
  state: RunState,
  check: InputCheck,
): NewEvent {
  const { input_id, content } = payload;
  const input = state.inputs.find((one) => one.input_id === input_id);
  if (input === undefined) return rejected(asked, "not_found", "the run has not asked for this");
  if (input.status === "received") return alreadyReceived(asked, input);
  const problem = check(input_id, content);
  if (problem !== undefined) {
    return rejected(asked, "invalid", `payload.content: ${problem}`, { input_id, status: "open" });
  }
  return {
    type: "input.received",
    ...answers(asked),
    ...within(input),
    payload: { input_id, content, by: asked.by },
  };
}

/** What was said stands in the state, and may be large: only who said it is told. */
function alreadyReceived(asked: Asked, { input_id, by }: InputState): NewEvent {
  const current = { input_id, status: "received", ...(by === undefined ? {} : { by }) };
  return rejected(asked, "already_resolved", "the input was given before", current);
}
