import { authorise, type Operation } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import { type Refusal, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";
import type { KnownSession } from "./sessions.ts";

/** The session's record, if the user may do this in it. */
export async function authorised(
  { sessions }: Pick<CommandServices, "sessions">,
  principal: Principal,
  operation: Operation,
  session: string,
): Promise<{ readonly ok: true; readonly record: KnownSession } | Refusal> {
  const record = await sessions.get({ tenant: principal.tenant, session });
  const verdict = authorise(principal, operation, record);
  if (!verdict.ok) return refusal(verdict.code, verdict.message);
  return record === undefined
    ? refusal("not_found", "there is no such session")
    : { ok: true, record };
}
