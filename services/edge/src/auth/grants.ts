import type { Principal } from "./principal.ts";

export type Operation = "session.create" | "session.change" | "read" | "run.start" | "run.steer";

/** What of a session's record decides who may do what. */
export interface SessionGrants {
  readonly tenant: string;
  readonly owner: string;
  /** User → role; the owner is not listed. */
  readonly members: Readonly<Record<string, string>>;
}

export type Verdict =
  | { readonly ok: true }
  | { readonly ok: false; readonly code: "not_found" | "forbidden"; readonly message: string };

/** What a role may do in its session. A role that is not listed may do nothing. */
const ALLOWED: Readonly<Record<string, readonly Operation[]>> = {
  owner: ["read", "run.start", "run.steer", "session.change"],
  operator: ["read", "run.start", "run.steer"],
  viewer: ["read"],
};

const OK: Verdict = { ok: true };
const NOT_FOUND: Verdict = {
  ok: false,
  code: "not_found",
  message: "no such session, or none that this user may see",
};

/**
 * The one place where grants are checked, for every door: WebSocket, commands, pages. A session of
 * another tenant, or one that the user has no part in, is as if it did not exist (INV11).
 */
export function authorise(
  principal: Principal,
  operation: Operation,
  session: SessionGrants | undefined,
): Verdict {
  if (operation === "session.create") return OK;
  if (session === undefined || session.tenant !== principal.tenant) return NOT_FOUND;
  const role = roleOf(principal.user, session);
  const allowed = role === undefined ? undefined : ALLOWED[role];
  if (allowed === undefined) return NOT_FOUND;
  if (allowed.includes(operation)) return OK;
  return { ok: false, code: "forbidden", message: `a ${role} of this session may not do that` };
}

function roleOf(user: string, session: SessionGrants): string | undefined {
  if (user === session.owner) return "owner";
  // Own members only: a user named "constructor" has no part in anything.
  return Object.hasOwn(session.members, user) ? session.members[user] : undefined;
}
