/** What a stored command does to a run. Each gets a durable answer: its effect, or `command.rejected`. */
import type { StoredCommand } from "@throughline/broker";
import {
  commandVerdict,
  ERROR_CODES,
  type ErrorCode,
  isApplied,
  isId,
  isRunCommandType,
  type NewEvent,
  type RunState,
} from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import type { CancelRequest } from "./ending.ts";

/** What is to be done about one command. */
export type Reaction =
  /** Answered before (a duplicate past the server's window), or so broken that nobody waits for an answer. */
  | { readonly kind: "skip"; readonly why: string }
  | { readonly kind: "answer"; readonly event: NewEvent }
  | { readonly kind: "cancel"; readonly command: CancelRequest };

/** Pure. `state`: as of everything that earlier commands have stored. */
export function reactTo(stored: StoredCommand, state: RunState): Reaction {
  const parsed = parseCommand(stored.command);
  if (!parsed.ok) {
    const id = parsed.id !== undefined && isId(parsed.id) ? parsed.id : undefined;
    // Whoever wrote it past the edge has no id to be answered by.
    if (id === undefined) return { kind: "skip", why: `not a command: ${parsed.message}` };
    if (isApplied(state, id, userOf(stored))) return { kind: "skip", why: "answered before" };
    return rejected(stored, id, parsed.code, parsed.message);
  }
  const { command } = parsed;
  if (isApplied(state, command.id, userOf(stored))) return { kind: "skip", why: "answered before" };
  if (!isRunCommandType(command.type)) {
    return rejected(stored, command.id, "invalid", `${command.type} is not addressed to a run`);
  }
  const verdict = commandVerdict(state.status, command.type);
  if (!verdict.ok) {
    return rejected(stored, command.id, verdict.code, ERROR_CODES[verdict.code].summary, {
      status: state.status,
    });
  }
  switch (command.type) {
    case "run.cancel":
      return {
        kind: "cancel",
        command: {
          id: command.id,
          user: userOf(stored),
          streamSeq: stored.streamSeq,
          reason: command.payload.reason,
        },
      };
    default:
      return rejected(
        stored,
        command.id,
        "not_allowed",
        `this worker does not carry out ${command.type}`,
        { status: state.status },
      );
  }
}

/** The edge always names one. An event with none would not be legal, and the run's log unreadable. */
function userOf(stored: StoredCommand): string {
  return stored.user === "" ? "unknown" : stored.user;
}

function rejected(
  stored: StoredCommand,
  id: string,
  code: ErrorCode,
  message: string,
  current?: unknown,
): Reaction {
  return {
    kind: "answer",
    event: {
      type: "command.rejected",
      reply_to: id,
      reply_by: userOf(stored),
      payload: { id, code, message, ...(current === undefined ? {} : { current }) },
    },
  };
}
