import type { SessionRecord } from "@throughline/broker";
import { z } from "zod";
import type { Principal } from "../auth/principal.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, problem, type Reply } from "../transport/problem.ts";
import { bodyOf } from "./body.ts";
import type { ApiServices } from "./services.ts";
import { permitted } from "./visible.ts";

/** As many as `session.create` takes, and a record stays small. */
const MAX_MEMBERS = 256;

interface Change {
  readonly user: string;
  readonly role: "viewer" | "operator" | "owner" | null;
}

const change: z.ZodType<Change> = z.object({
  // Refused as a member's name in every command, too.
  user: z
    .string()
    .min(1)
    .max(256)
    .refine((user) => user !== "__proto__", "is not allowed"),
  role: z.enum(["viewer", "operator", "owner"]).nullable(),
});

/**
 * POST /v1/sessions/{s}/members: gives a user a role, or none (`role: null`). Safe to repeat. What the
 * user does next is judged by it, on other nodes within moments.
 */
export async function setMember(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const body = bodyOf(request);
  if (!body.ok) return body.reply;
  const parsed = change.safeParse(body.value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return problem(
      "invalid",
      `${issue?.path.join(".") ?? "body"}: ${issue?.message ?? "is wrong"}`,
    );
  }
  const found = await permitted(services, principal, "session.change", request.params[0]);
  if ("status" in found) return found;
  const ref = { tenant: principal.tenant, session: found.session };
  const wanted = parsed.data;
  let full = false;
  const record = await services.records.update(ref, (held) => {
    const next = withMember(held, wanted);
    full = Object.keys(next.members).length > MAX_MEMBERS;
    return full ? held : next;
  });
  services.commands.sessions.forget(ref);
  if (record === undefined) return problem("not_found", "there is no such session");
  if (record.owner === wanted.user) {
    return problem("not_allowed", "the one who made the session stays its owner");
  }
  if (full) return problem("not_allowed", `a session may have ${MAX_MEMBERS} members`);
  const { memberships } = services.commands;
  if (wanted.role === null) await memberships.remove(record, wanted.user);
  else await memberships.add(record, [wanted.user]);
  return json(200, wanted);
}

/** Pure. The maker of the session is not listed, and stays. */
function withMember(record: SessionRecord, { user, role }: Change): SessionRecord {
  if (record.owner === user) return record;
  const { [user]: _before, ...others } = record.members;
  return { ...record, members: role === null ? others : { ...others, [user]: role } };
}
