import { refusalOf } from "../commands/outcome.ts";
import { ORIGIN_REFUSED } from "../auth/origins.ts";
import type { Principal } from "../auth/principal.ts";
import type { Streamed } from "../transport/exchange.ts";
import type { Admission, HttpRequest, Route } from "../transport/http.ts";
import { notAHandshake } from "../transport/handshake.ts";
import { problem, type Reply } from "../transport/problem.ts";
import { bearerOf, type RequestHead } from "../transport/request.ts";
import { getAgents } from "./agents.ts";
import { getArtifact } from "./artifacts.ts";
import { createSession, sendCommand, startRun } from "./commands.ts";
import { setMember } from "./members.ts";
import { getEvents, getRun } from "./reads.ts";
import { getSession, getSessions } from "./sessions.ts";
import { createTicket } from "./tickets.ts";
import type { ApiServices, Handler } from "./services.ts";

const TABLE: readonly (readonly [Route["method"], string, Handler])[] = [
  ["get", "/v1/agents", getAgents],
  ["post", "/v1/sessions", createSession],
  ["get", "/v1/sessions", getSessions],
  ["get", "/v1/sessions/:session", getSession],
  ["post", "/v1/sessions/:session/members", setMember],
  ["post", "/v1/sessions/:session/runs", startRun],
  ["post", "/v1/sessions/:session/runs/:run/commands", sendCommand],
  ["get", "/v1/sessions/:session/runs/:run", getRun],
  ["get", "/v1/sessions/:session/runs/:run/events", getEvents],
  ["get", "/v1/sessions/:session/events", getEvents],
  ["get", "/v1/sessions/:session/artifacts/:artifact", getArtifact],
  ["post", "/v1/tickets", createTicket],
];

/** What a stream ticket opens: the events, and the state that a snapshot may only name. */
const BY_TICKET: ReadonlySet<string> = new Set([
  "/v1/sessions/:session/events",
  "/v1/sessions/:session/runs/:run/events",
  "/v1/sessions/:session/runs/:run",
]);

/** The HTTP API (PROTOCOL §5). Commands take the same way as over a WebSocket. */
export function apiRoutes(services: ApiServices): Route[] {
  const routes: Route[] = TABLE.map(([method, pattern, handle]) => ({
    method,
    pattern,
    admit: (head, params) => {
      const ticket = BY_TICKET.has(pattern) ? head.query.get("ticket") : null;
      return ticket === null || head.headers.has("authorization")
        ? authenticated(services, head)
        : redeemed(services, head, ticket, params);
    },
    handle: (principal, request) => answered(services, principal, request, handle),
  }));
  return [...routes, CONNECT];
}

const UPGRADE_ONLY = problem("upgrade_required", "this path takes WebSockets");

/** What comes here is no handshake: uWebSockets has taken those, by the length of their key. */
const CONNECT: Route = {
  method: "get",
  pattern: "/v1/connect",
  admit: (head) => notAHandshake(head) ?? UPGRADE_ONLY,
  handle: () => Promise.resolve(UPGRADE_ONLY),
};

async function authenticated(services: ApiServices, head: RequestHead): Promise<Admission> {
  const who = await services.authenticate(bearerOf(head.headers), head);
  if (who.ok) return { principal: who.principal };
  const headers = who.code === "unauthenticated" ? { "WWW-Authenticate": "Bearer" } : {};
  return problem(who.code, who.message, { headers });
}

/** A ticket is for its run or session: anywhere else it says nothing, not even what there is. */
async function redeemed(
  services: ApiServices,
  head: RequestHead,
  ticket: string,
  [session, run]: readonly string[],
): Promise<Admission> {
  if (!services.origins.allows(head)) return problem("forbidden", ORIGIN_REFUSED);
  const found = await services.tickets.redeem(ticket);
  if (!found.ok) return problem("unauthenticated", found.message);
  const { scope, principal } = found;
  const isFor = scope.session === session && (scope.run === undefined || scope.run === run);
  return isFor ? { principal } : problem("forbidden", "the ticket is for another run or session");
}

async function answered(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
  handle: Handler,
): Promise<Reply | Streamed> {
  try {
    return await handle(services, principal, request);
  } catch (error) {
    const refused = refusalOf(error);
    if (refused.code === "internal") throw error;
    return problem(refused.code, refused.message, refused);
  }
}
