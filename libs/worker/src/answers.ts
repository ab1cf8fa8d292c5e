/** What answers a command carries: whose it was, and why it has no other effect. Pure. */
import type { StoredCommand } from "@throughline/broker";
import { ERROR_CODES, type ErrorCode, type NewEvent } from "@throughline/protocol";

/** Of a command: its id, and who sent it. */
export interface Sender {
  readonly id: string;
  readonly user: string;
}

/** The edge always names one. An event with none would not be legal, and the run's log unreadable. */
export function userOf(stored: Pick<StoredCommand, "user">): string {
  return stored.user === "" ? "unknown" : stored.user;
}

export function replyTo(sender: Sender, event: NewEvent): NewEvent {
  return { ...event, reply_to: sender.id, reply_by: sender.user };
}

/** Rejected for what the code itself says. `current`: how things stand. */
export function refused(sender: Sender, code: ErrorCode, current: unknown): NewEvent {
  return rejected(sender, code, ERROR_CODES[code].summary, current);
}

export function rejected(
  sender: Sender,
  code: ErrorCode,
  message: string,
  current?: unknown,
): NewEvent {
  return replyTo(sender, {
    type: "command.rejected",
    payload: { id: sender.id, code, message, ...(current === undefined ? {} : { current }) },
  });
}
