import type { LogFilter, RunRef } from "@throughline/broker";
import { isId } from "@throughline/protocol";
import { authorise, type Operation } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import type { KnownSession } from "../commands/sessions.ts";
import { problem, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";

export const NOT_AN_ID = "must be 1 to 64 characters of A-Z a-z 0-9 _ -";

/** The session of the path, if the user may do this in it; else the refusal. */
export async function permitted(
  services: ApiServices,
  { tenant, user }: Principal,
  operation: Operation,
  session: string | undefined,
): Promise<{ readonly session: string; readonly record: KnownSession } | Reply> {
  if (!isId(session)) return problem("invalid", `session: ${NOT_AN_ID}`);
  const record = await services.commands.sessions.get({ tenant, session });
  const verdict = authorise({ tenant, user }, operation, record);
  if (!verdict.ok) return problem(verdict.code, verdict.message);
  if (record === undefined) return problem("not_found", "there is no such session");
  return { session, record };
}

/** The path's run or session, if the user may read it; else the refusal. */
export async function visible(
  services: ApiServices,
  principal: Principal,
  [session, run]: readonly string[],
): Promise<
  (LogFilter & { readonly kind: "session" }) | ({ readonly kind: "run" } & RunRef) | Reply
> {
  if (run !== undefined && !isId(run)) return problem("invalid", `run: ${NOT_AN_ID}`);
  const found = await permitted(services, principal, "read", session);
  if ("status" in found) return found;
  const ref = { tenant: principal.tenant, session: found.session };
  return run === undefined ? { kind: "session", ...ref } : { kind: "run", ...ref, run };
}

/** `?limit=`, or what is wrong with it. */
export function limitOf(
  query: URLSearchParams,
  { usual, most }: { readonly usual: number; readonly most: number },
):
  | { readonly ok: true; readonly limit: number }
  | { readonly ok: false; readonly message: string } {
  const text = query.get("limit") ?? String(usual);
  const isCount = /^[1-9][0-9]{0,3}$/.test(text) && Number(text) <= most;
  return isCount
    ? { ok: true, limit: Number(text) }
    : { ok: false, message: `query.limit: must be a whole number from 1 to ${most}` };
}
