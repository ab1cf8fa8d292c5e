import type { Principal } from "../auth/principal.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Log } from "../log.ts";
import { optionsReply } from "./cors.ts";
import { Exchange, type ExchangeOptions, type Streamed } from "./exchange.ts";
import { problem, type Reply } from "./problem.ts";
import { headersOf, readHead, type RequestHead } from "./request.ts";
import type { UwsApp, UwsRequest, UwsResponse } from "./uws.ts";

export interface HttpRequest extends RequestHead {
  /** Of the pattern's `:name` parts, in order. */
  readonly params: readonly string[];
  /** Empty for GET. */
  readonly body: Buffer;
  /** Only the answer's head is asked for. */
  readonly isHead: boolean;
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
  readonly admit: (head: RequestHead, params: readonly string[]) => Promise<Admission> | Admission;
  /** May reject: then the client gets `internal`. */
  readonly handle: (principal: Principal, request: HttpRequest) => Promise<Reply | Streamed>;
}

export type Admission = { readonly principal: Principal } | Reply;

export interface HttpOptions extends ExchangeOptions {
  readonly maxBodyBytes: number;
  /** Requests in flight, node-wide. */
  readonly requests: Slots;
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
    app.any(pattern, otherMethods(own, options));
  }
  const notFound = problem("not_found", "there is no such path");
  app.any("/*", (res, req) => answerAtOnce(new Exchange(res, options), req, () => notFound));
}

type HttpHandler = (res: UwsResponse, req: UwsRequest) => void;

/** HEAD is a GET without its body, OPTIONS says what there is. */
function otherMethods(own: readonly Route[], options: HttpOptions): HttpHandler {
  const get = own.find((route) => route.method === "get");
  const head = get && handler(get, options);
  const taken = own.map((route) => route.method.toUpperCase());
  const allow = [...taken, ...(get ? ["HEAD"] : []), "OPTIONS"].join(", ");
  const message = `this path takes ${allow}`;
  const notAllowed = problem("method_not_allowed", message, { headers: { Allow: allow } });
  return (res, req) => {
    const method = req.getMethod();
    if (method === "head" && head) return head(res, req);
    answerAtOnce(new Exchange(res, options), req, (headers) =>
      method === "options" ? optionsReply(headers, allow, options.allowsOrigin) : notAllowed,
    );
  };
}

function handler(route: Route, options: HttpOptions): HttpHandler {
  const paramCount = route.pattern.split("/:").length - 1;
  return (res, req) => {
    const exchange = new Exchange(res, options);
    try {
      const head = readHead(res, req);
      exchange.asked(req.getMethod(), head.headers);
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
    const admission = await route.admit(coming.head, coming.params);
    if (!("principal" in admission)) {
      exchange.reply(admission);
      return;
    }
    const body = await coming.body;
    const park = (): Promise<void> => exchange.park();
    const { isHead } = exchange;
    const request = { ...coming.head, params: coming.params, body, isHead, park };
    const handled = await route.handle(admission.principal, request);
    if ("stream" in handled) await exchange.stream(handled);
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

function answerAtOnce(
  exchange: Exchange,
  req: UwsRequest,
  reply: (headers: RequestHead["headers"]) => Reply,
): void {
  const headers = headersOf(req);
  exchange.asked(req.getMethod(), headers);
  if (!exchange.refusesFraming(headers)) exchange.reply(reply(headers));
}
