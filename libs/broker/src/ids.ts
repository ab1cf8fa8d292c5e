import { createHash } from "node:crypto";

export interface SessionRef {
  readonly tenant: string;
  readonly session: string;
}

export interface RunRef extends SessionRef {
  readonly run: string;
}

/** 132 bits of SHA-256 over the parts: unambiguous, since JSON quotes each. */
function derived(prefix: string, parts: readonly string[]): string {
  const digest = createHash("sha256").update(JSON.stringify(parts)).digest("base64url");
  return `${prefix}_${digest.slice(0, 22)}`;
}

/** The session that `session.create` with this command id makes: a retry through another node makes the same. */
export function deriveSessionId(scope: { tenant: string; user: string; id: string }): string {
  return derived("ses", [scope.tenant, scope.user, scope.id]);
}

/** The run that `run.start` with this command id makes. The session is in the scope: one id in two sessions is two runs. */
export function deriveRunId(scope: {
  tenant: string;
  user: string;
  session: string;
  id: string;
}): string {
  return derived("run", [scope.tenant, scope.user, scope.session, scope.id]);
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (value === null || typeof value !== "object") return value;
  const sorted: [string, unknown][] = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .map(([key, member]) => [key, canonical(member)]);
  sorted.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  // A list of pairs, not an object: a key such as "__proto__" or "1" must count like any other.
  return { members: sorted };
}

/** SHA-256 (base64url, 22 characters) of a JSON value, blind to the order of members. Tells a retry from another command. */
export function bodyHash(value: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify(canonical(value)) ?? "undefined")
    .digest("base64url")
    .slice(0, 22);
}
