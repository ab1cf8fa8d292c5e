import type { Command, ControlFrameOf, ErrorCode } from "@throughline/protocol";

/** What came of a command, before it is told over one of the doors. */
export type Outcome =
  | {
      readonly ok: true;
      readonly kind: "session";
      readonly session: string;
      readonly duplicate: boolean;
    }
  | {
      readonly ok: true;
      readonly kind: "started";
      readonly run: string;
      readonly duplicate: boolean;
      /** Where to follow it from. */
      readonly cursor: string;
    }
  | {
      readonly ok: true;
      readonly kind: "stored";
      readonly run: string;
      readonly duplicate: boolean;
    }
  | Refusal;

export interface Refusal {
  readonly ok: false;
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs?: number;
  /** What stands in the way, as it is now. */
  readonly current?: unknown;
}

export function refusal(code: ErrorCode, message: string, retryAfterMs?: number): Refusal {
  return retryAfterMs === undefined
    ? { ok: false, code, message }
    : { ok: false, code, message, retryAfterMs };
}

/** When NATS does not answer. Short, since it is mostly a leader's election. */
const UNAVAILABLE_RETRY_MS = 1_000;

/** The refusal that a failed call of the broker stands for; `internal` for what nobody foresaw. */
export function refusalOf(error: unknown): Refusal {
  const name = error instanceof Error ? error.name : "";
  if (name === "BrokerUnavailable" || name === "HubBehind") {
    return refusal("unavailable", "the event log does not answer now", UNAVAILABLE_RETRY_MS);
  }
  return refusal("internal", "the node could not do this");
}

type AnswerFrame = ControlFrameOf<"session.created" | "command.accepted" | "command.rejected">;

/** The frame that answers `command` on a connection. */
export function answerFrame(command: Command, outcome: Outcome): AnswerFrame {
  const { id } = command;
  if (!outcome.ok) {
    const { code, message, retryAfterMs, current } = outcome;
    const retry = retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs };
    const now = current === undefined ? {} : { current };
    return { type: "command.rejected", id, code, message, ...retry, ...now };
  }
  if (outcome.kind === "session") {
    const { session, duplicate } = outcome;
    return { type: "session.created", id, session_id: session, duplicate };
  }
  return { type: "command.accepted", id, run_id: outcome.run, duplicate: outcome.duplicate };
}

export function conflict(): Refusal {
  return refusal("idempotency_conflict", "this command id was used before with another content");
}
