import type { Principal } from "../auth/principal.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Log } from "../log.ts";
import { Exchange, type Streamed } from "./exchange.ts";
import { problem, type Reply } from "./problem.ts";
import { headersOf, readHead, type RequestHead } from "./request.ts";
import type { SseOptions } from "./sse-socket.ts";
import type { UwsApp, UwsRequest, UwsResponse } from "./uws.ts";

export interface HttpRequest extends RequestHead {
  /** Of the pattern's `:name` parts, in order. */
  readonly params: readonly string[];
  /** Empty for GET. */
  readonly body: Buffer;
  /**
   * Gives its place among the requests on their way back, since from here on it only waits. Resolves when
   * the client is gone.
   */
  readonly park: () => Promise<void>;
}

export interface Route {
  readonly method: "get" | "post";
  readonly pattern: string;
  /** Decides on the head alone, so that a stranger's body is neither waited for nor kept. May reject. */
  readonly admit: (head: RequestHead) => Promise<Admission> | Admission;
  /** May reject: then the client gets `internal`. */
  readonly handle: (principal: Principal, request: HttpRequest) => Promise<Reply | Streamed>;
}

export type Admission = { readonly principal: Principal } | Reply;

export interface HttpOptions {
  readonly maxBodyBytes: number;
  /** Requests in flight, node-wide. */
  readonly requests: Slots;
  /**
   * Whether this node is going: then each answer is the last on its connection, so that no client and no
   * load balancer puts a further request on one that is about to close.
   */
  readonly isLeaving: () => boolean;
  readonly streaming: SseOptions;
  readonly log: Log;
}

/**
 * Serves the routes over uWebSockets. Its rules, each of which costs the process when broken:
 * `onAborted` first, nothing thrown out of a handler, nothing of `req` after the first await,
 * every write in a cork, nothing after an abort.
 */
export function serveRoutes(app: UwsApp, routes: readonly Route[], options: HttpOptions): void {
  for (const pattern of new Set(routes.map((route) => route.pattern))) {
    const own = routes.filter((route) => route.pattern === pattern);
    for (const route of own) app[route.method](pattern, handler(route, options));
    const allow = own.map((route) => route.method.toUpperCase()).join(", ");
    const message = `this path takes ${allow}`;
    const notAllowed = problem("method_not_allowed", message, { headers: { Allow: allow } });
    app.any(pattern, (res, req) => refuse(new Exchange(res, options.isLeaving), req, notAllowed));
  }
  const notFound = problem("not_found", "there is no such path");
  app.any("/*", (res, req) => refuse(new Exchange(res, options.isLeaving), req, notFound));
}

function handler(route: Route, options: HttpOptions): (res: UwsResponse, req: UwsRequest) => void {
  const paramCount = route.pattern.split("/:").length - 1;
  return (res, req) => {
    const exchange = new Exchange(res, options.isLeaving);
    try {
      const head = readHead(res, req);
      if (exchange.refusesFraming(head.headers)) return;
      const params = Array.from({ length: paramCount }, (_, i) => decoded(req.getParameter(i)));
      if (!options.requests.tryTake()) {
        exchange.reply(problem("overloaded", "too many requests at once", { retryAfterMs: 1_000 }));
        return;
      }
      exchange.onAborted(() => options.requests.give());
      const body =
        route.method === "post"
          ? exchange.readBody(options.maxBodyBytes)
          : Promise.resolve(Buffer.alloc(0));
      void answer(route, { head, params, body }, exchange, options);
    } catch (error) {
      options.log.error({ err: error, pattern: route.pattern }, "a request handler threw");
      exchange.reply(problem("internal", "the node could not do this"));
    }
  };
}

async function answer(
  route: Route,
  coming: { head: RequestHead; params: readonly string[]; body: Promise<Buffer> },
  exchange: Exchange,
  options: HttpOptions,
): Promise<void> {
  try {
    const admission = await route.admit(coming.head);
    if (!("principal" in admission)) {
      exchange.reply(admission);
      return;
    }
    const body = await coming.body;
    const park = (): Promise<void> => exchange.park();
    const request = { ...coming.head, params: coming.params, body, park };
    const handled = await route.handle(admission.principal, request);
    if ("stream" in handled) await exchange.stream(handled, options.streaming);
    else exchange.reply(handled);
  } catch (error) {
    options.log.error({ err: error, pattern: route.pattern }, "a request failed");
    exchange.reply(problem("internal", "the node could not do this"));
  }
}

/** A part that is no valid escape cannot be an id: it is passed on to be refused as one. */
function decoded(part: string | undefined): string {
  try {
    return decodeURIComponent(part ?? "");
  } catch {
    return part ?? "";
  }
}

function refuse(exchange: Exchange, req: UwsRequest, reply: Reply): void {
  if (!exchange.refusesFraming(headersOf(req))) exchange.reply(reply);
}
