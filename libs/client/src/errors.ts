/** One class per cause that the caller can act upon. */
import type { ClosedFor } from "./connection/lifecycle.ts";

/** The edge refused a command: nothing of it was stored. */
export class CommandRejected extends Error {
  override readonly name = "CommandRejected";
  /** Of the protocol's table of error codes; a newer server may send others. */
  readonly code: string;
  /** The command's id. */
  readonly id: string;
  /** How things stand instead, where the server says so. */
  readonly current: unknown;

  constructor(refusal: { id: string; code: string; message: string; current?: unknown }) {
    super(`${refusal.code}: ${refusal.message}`);
    this.id = refusal.id;
    this.code = refusal.code;
    this.current = refusal.current;
  }
}

/** So many commands are waiting for their answers that no more are taken. */
export class OutboxFull extends Error {
  override readonly name = "OutboxFull";
}

/** The client is closed, by `close()` or by a close code that says not to come back. */
export class ClientClosed extends Error {
  override readonly name = "ClientClosed";
  /** Why; `refused` has the close code. */
  readonly closed: ClosedFor;

  constructor(closed: ClosedFor) {
    super(describe(closed), closed.kind === "unusable" ? { cause: closed.error } : undefined);
    this.closed = closed;
  }
}

/** Following cannot go on. */
export class FollowFailed extends Error {
  override readonly name = "FollowFailed";
  /**
   * A code of the protocol's table (`not_found`, `forbidden` …), or `hole`: the server leaves an event
   * out however often it is asked; or `membership`: the user was taken out of the session.
   */
  readonly code: string;

  constructor(code: string, message: string) {
    super(`${code}: ${message}`);
    this.code = code;
  }
}

/** The handle was closed by its owner before the run had ended. */
export class FollowClosed extends Error {
  override readonly name = "FollowClosed";
}

function describe(closed: ClosedFor): string {
  switch (closed.kind) {
    case "stopped":
      return "the client was closed";
    case "refused":
      return `the server closed the connection for good: ${closed.code} ${closed.reason}`.trimEnd();
    case "unusable":
      return `the client cannot connect: ${closed.error.message}`;
  }
}
