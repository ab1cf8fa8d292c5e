/* Where each command goes. Held against the schemas by the compiler, like the events. */
import type { CommandType } from "./commands/catalogue.ts";

interface CommandKind {
  /**
   * edge: answered by the edge, has no effect on any session or run.
   * session: makes a session or a run.
   * run: stored in the run's command log and judged by its worker.
   */
  readonly to: "edge" | "session" | "run";
  /** The frame that answers it. */
  readonly answer:
    | "session.created"
    | "subscribed"
    | "unsubscribed"
    | "command.accepted"
    | "auth.refreshed"
    | "heartbeat.ack"
    | "none";
}

export const COMMAND_KINDS = {
  "session.create": { to: "session", answer: "session.created" },
  subscribe: { to: "edge", answer: "subscribed" },
  unsubscribe: { to: "edge", answer: "unsubscribed" },
  ack: { to: "edge", answer: "none" },
  "run.start": { to: "session", answer: "command.accepted" },
  "run.cancel": { to: "run", answer: "command.accepted" },
  "run.interrupt": { to: "run", answer: "command.accepted" },
  "run.resume": { to: "run", answer: "command.accepted" },
  "run.continue": { to: "run", answer: "command.accepted" },
  "run.retry": { to: "session", answer: "command.accepted" },
  "step.retry": { to: "run", answer: "command.accepted" },
  "approval.respond": { to: "run", answer: "command.accepted" },
  "tool_call.claim": { to: "run", answer: "command.accepted" },
  "tool_result.report": { to: "run", answer: "command.accepted" },
  "input.respond": { to: "run", answer: "command.accepted" },
  "auth.refresh": { to: "edge", answer: "auth.refreshed" },
  heartbeat: { to: "edge", answer: "heartbeat.ack" },
} as const satisfies Record<CommandType, CommandKind>;

/** Commands whose outcome depends on a run's status: the columns of the transition table. */
export type RunCommandType =
  | { [T in CommandType]: (typeof COMMAND_KINDS)[T]["to"] extends "run" ? T : never }[CommandType]
  | "run.retry";

export function isCommandType(type: string): type is CommandType {
  return Object.hasOwn(COMMAND_KINDS, type);
}

export function isRunCommandType(type: string): type is RunCommandType {
  return isCommandType(type) && (COMMAND_KINDS[type].to === "run" || type === "run.retry");
}
