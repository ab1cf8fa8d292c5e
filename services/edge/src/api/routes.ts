import { refusalOf } from "../commands/outcome.ts";
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
];

/** The HTTP API (PROTOCOL §5). Commands take the same way as over a WebSocket. */
export function apiRoutes(services: ApiServices): Route[] {
  const admit = (head: RequestHead): Promise<Admission> => authenticated(services, head);
  const routes: Route[] = TABLE.map(([method, pattern, handle]) => ({
    method,
    pattern,
    admit,
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
