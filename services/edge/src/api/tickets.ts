import { isId } from "@throughline/protocol";
import { z } from "zod";
import type { Principal } from "../auth/principal.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, problem, type Reply } from "../transport/problem.ts";
import { bodyOf } from "./body.ts";
import type { ApiServices } from "./services.ts";
import { NOT_AN_ID, permitted } from "./visible.ts";

/** As long as a page stays open for a run; a longer one is asked for by those who need it. */
const USUAL_TTL_MS = 60 * 60 * 1_000;
const TTL_MS = { least: 1_000, most: 24 * 60 * 60 * 1_000 } as const;

const id = z.string().refine(isId, NOT_AN_ID);
const asked = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("connect") }),
  z.object({
    kind: z.literal("stream"),
    session_id: id,
    run_id: id.optional(),
    ttl_ms: z.int().min(TTL_MS.least).max(TTL_MS.most).default(USUAL_TTL_MS),
  }),
]);

/**
 * POST /v1/tickets: a stream ticket for a run or session that the user may read. Whether there is such a run
 * is left to its stream to say. It holds no longer than the credentials that it is asked for with.
 */
export async function createTicket(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const body = bodyOf(request);
  if (!body.ok) return body.reply;
  const parsed = asked.safeParse(body.value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return problem(
      "invalid",
      `${issue?.path.join(".") ?? "body"}: ${issue?.message ?? "is wrong"}`,
    );
  }
  if (parsed.data.kind === "connect") {
    return problem("unavailable", "this node gives no connect tickets: connect with a token");
  }
  const { session_id, run_id: run, ttl_ms } = parsed.data;
  const found = await permitted(services, principal, "read", session_id);
  if ("status" in found) return found;
  const { session } = found;
  const wanted = services.commands.wallClock() + ttl_ms;
  const until = Math.min(wanted, principal.expiresAt ?? Infinity);
  const issued = await services.tickets.issue(principal, { session, run }, until);
  if (issued === undefined) {
    return problem(
      "unavailable",
      "this node has no key for tickets: set TL_STREAM_KEY on all nodes",
    );
  }
  const { ticket, expiresAt: expires_at } = issued;
  const path = run === undefined ? session : `${session}/runs/${run}`;
  const url = `/v1/sessions/${path}/events?ticket=${ticket}`;
  return json(201, { kind: "stream", ticket, url, expires_at });
}
