import { bodyHash, deriveSessionId } from "@throughline/broker";
import type { CommandOf } from "@throughline/protocol";
import { authorise } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import { conflict, type Outcome, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";

export async function createSession(
  services: CommandServices,
  principal: Principal,
  command: CommandOf<"session.create">,
): Promise<Outcome> {
  const verdict = authorise(principal, "session.create", undefined);
  if (!verdict.ok) return refusal(verdict.code, verdict.message);
  const { tenant, user } = principal;
  const session = deriveSessionId({ tenant, user, id: command.id });
  const hash = bodyHash({ type: command.type, payload: command.payload });
  const { title, members, options } = command.payload;
  const { outcome, record } = await services.creator.create({
    tenant,
    session,
    owner: user,
    ...(title === undefined ? {} : { title }),
    members: members ?? {},
    ...(options === undefined ? {} : { options }),
    created_at: services.wallClock(),
    command_hash: hash,
  });
  if (record.command_hash !== hash) return conflict();
  // Not before the record: a list names no session that is not there. A retry comes here again.
  await services.memberships.add(record, [record.owner, ...Object.keys(record.members)]);
  return { ok: true, kind: "session", session, duplicate: outcome === "exists" };
}
