/** What goes wrong in an agent, and how it is told to clients: code, message, retryable. Never a stack. */
import { EventTooLarge, LogCorrupt, ObjectGone } from "@throughline/broker";
import { type EventPayload, FAILURE_CODES } from "@throughline/protocol";

export type Failure = EventPayload<"run.failed">;

export interface AgentErrorOptions {
  /** Would the same again have a chance? (default false) */
  readonly retryable?: boolean;
  /** When it has, in ms: a step's retry waits for so long. */
  readonly retryAfterMs?: number;
  readonly cause?: unknown;
}

/** Thrown by agents to say what clients are told. Any other error becomes `agent_error` with its message. */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly code: string;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(code: string, message: string, options: AgentErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : {});
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export type StopReason =
  | "interrupted"
  | "cancelled"
  | "deadline"
  | "failed"
  | "shutdown"
  | "lost"
  | "ended";

/** The reason of `ctx.signal`, and what every operation of the context throws once the run was stopped. */
export class RunStopped extends Error {
  override readonly name = "RunStopped";
  readonly reason: StopReason;

  constructor(reason: StopReason, cause?: unknown) {
    super(`the run was stopped: ${reason}`, cause === undefined ? {} : { cause });
    this.reason = reason;
  }
}

/** Messages are shown to people; a megabyte of a provider's answer in one is not for them. */
const MAX_MESSAGE = 2_000;
const MAX_CODE = 64;

export function failureOf(error: unknown): Failure {
  if (error instanceof AgentError) {
    return {
      code: error.code.slice(0, MAX_CODE) || "agent_error",
      message: error.message.slice(0, MAX_MESSAGE),
      retryable: error.retryable,
    };
  }
  const message = error instanceof Error ? error.message : String(error);
  // The same again is as large: its message names the size, the limit and the way out.
  if (error instanceof EventTooLarge) return { code: "event_too_large", message, retryable: false };
  if (isGone(error)) return { code: "object_gone", message, retryable: false };
  return {
    code: "agent_error",
    message: message.slice(0, MAX_MESSAGE),
    retryable: FAILURE_CODES.agent_error.retryable,
  };
}

/** The value that an event only names cannot be had, now or later: clients may report whatever looks like a name. */
export function isGone(error: unknown): boolean {
  return error instanceof ObjectGone || error instanceof LogCorrupt;
}

/** What an agent's `input` parser threw. Of a schema's error (zod and its like) the issues are told, path first. */
export function inputFailure(error: unknown): Failure {
  if (error instanceof AgentError) return failureOf(error);
  const issues = issuesOf(error);
  const message = issues.length > 0 ? issues.join("; ") : failureOf(error).message;
  return {
    code: "invalid_input",
    message: message.slice(0, MAX_MESSAGE),
    retryable: FAILURE_CODES.invalid_input.retryable,
  };
}

function issuesOf(error: unknown): string[] {
  const issues: unknown = error instanceof Error ? Reflect.get(error, "issues") : undefined;
  if (!Array.isArray(issues)) return [];
  return issues.flatMap((issue: unknown) => {
    if (typeof issue !== "object" || issue === null) return [];
    const message: unknown = Reflect.get(issue, "message");
    const path: unknown = Reflect.get(issue, "path");
    if (typeof message !== "string") return [];
    const at = Array.isArray(path) && path.length > 0 ? `${path.join(".")}: ` : "";
    return [`${at}${message}`];
  });
}

/** The error that a failed step throws, in the attempt that ran it and in every later one alike. */
export function errorOf(failure: Failure, cause?: unknown): AgentError {
  return new AgentError(failure.code, failure.message, {
    retryable: failure.retryable,
    ...(cause === undefined ? {} : { cause }),
  });
}
