import type { RunEntry } from "@throughline/broker";
import type { Principal } from "../auth/principal.ts";
import type { KnownSession } from "../commands/sessions.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, problem, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";
import { limitOf, permitted } from "./visible.ts";

const PAGE = { usual: 50, most: 200 } as const;
const RUNS = { usual: 100, most: 1_000 } as const;
/** So many runs one answer has, whatever was asked for: a session may have thousands. */
const RUNS_GIVEN = 256;

/** GET /v1/sessions: those that the user owns or is a member of, newest first. */
export async function getSessions(
  services: ApiServices,
  { tenant, user }: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const limited = limitOf(request.query, PAGE);
  if (!limited.ok) return problem("invalid", limited.message);
  const before = request.query.get("before") ?? undefined;
  const { limit } = limited;
  const page = await services.sessionLists.list(tenant, user, { limit, before });
  if (page === "no position") return problem("invalid", "query.before: is no place in this list");
  const sessions = page.entries.map(({ session, title, created_at }) => ({
    session_id: session,
    title,
    created_at,
  }));
  return json(200, { sessions, next: page.next });
}

/** GET /v1/sessions/{s}: the record with its runs, newest first. */
export async function getSession(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const limited = limitOf(request.query, RUNS);
  if (!limited.ok) return problem("invalid", limited.message);
  const found = await permitted(services, principal, "read", request.params[0]);
  if ("status" in found) return found;
  const { session, record } = found;
  const limit = Math.min(limited.limit, RUNS_GIVEN);
  // One more than asked for tells whether there are more.
  const runs = await services.runs.list({ tenant: principal.tenant, session }, limit + 1);
  return json(200, {
    ...recordBody(session, record),
    runs: runs.slice(0, limit).map(runBody),
    more: runs.length > limit,
  });
}

function recordBody(session: string, record: KnownSession): object {
  const { owner, title, members, options, created_at } = record;
  return { session_id: session, owner, title, members, options, created_at };
}

function runBody(entry: RunEntry): object {
  const { run, agent, status, by, queued_at, ended_at, retry_of, title } = entry;
  return { run_id: run, agent, status, by, queued_at, ended_at, retry_of, title };
}
