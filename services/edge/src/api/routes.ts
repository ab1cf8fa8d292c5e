import { refusalOf } from "../commands/outcome.ts";
import type { HttpRequest, Route } from "../transport/http.ts";
import { problem, type Reply } from "../transport/problem.ts";
import { bearerOf } from "../transport/request.ts";
import { createSession, sendCommand, startRun } from "./commands.ts";
import { getEvents, getSnapshot } from "./reads.ts";
import type { ApiServices, Handler } from "./services.ts";

const TABLE: readonly (readonly [Route["method"], string, Handler])[] = [
  ["post", "/v1/sessions", createSession],
  ["post", "/v1/sessions/:session/runs", startRun],
  ["post", "/v1/sessions/:session/runs/:run/commands", sendCommand],
  ["get", "/v1/sessions/:session/runs/:run", getSnapshot],
  ["get", "/v1/sessions/:session/runs/:run/events", getEvents],
  ["get", "/v1/sessions/:session/events", getEvents],
];

/** The HTTP API (PROTOCOL §5). Commands take the same way as over a WebSocket. */
export function apiRoutes(services: ApiServices): Route[] {
  const routes: Route[] = TABLE.map(([method, pattern, handle]) => ({
    method,
    pattern,
    handle: (request) => authenticated(services, request, handle),
  }));
  const upgradeOnly = (): Promise<Reply> => {
    const headers = { Upgrade: "websocket", Connection: "Upgrade" };
    return Promise.resolve(
      problem("invalid", "this path takes WebSockets", { status: 426, headers }),
    );
  };
  return [...routes, { method: "get", pattern: "/v1/connect", handle: upgradeOnly }];
}

async function authenticated(
  services: ApiServices,
  request: HttpRequest,
  handle: Handler,
): Promise<Reply> {
  const who = await services.authenticate(bearerOf(request.headers), request);
  if (!who.ok) {
    const headers = who.code === "unauthenticated" ? { "WWW-Authenticate": "Bearer" } : {};
    return problem(who.code, who.message, { headers });
  }
  try {
    return await handle(services, who.principal, request);
  } catch (error) {
    const refused = refusalOf(error);
    if (refused.code === "internal") throw error;
    return problem(refused.code, refused.message, refused);
  }
}
