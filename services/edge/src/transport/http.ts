import { STATUS_CODES } from "node:http";
import type { Principal } from "../auth/principal.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Log } from "../log.ts";
import type { StreamSocket } from "../session/port.ts";
import { problem, type Reply } from "./problem.ts";
import { framingFault, headersOf, readHead, type RequestHead } from "./request.ts";
import { type SseOptions, SseSocket } from "./sse-socket.ts";
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

/** An answer that goes on. Resolves with a reply where there is nothing to stream, before anything was. */
export interface Streamed {
  readonly stream: (socket: StreamSocket) => Promise<Reply | undefined>;
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

/** A larger body is handed over as the socket takes it: uWebSockets would keep a copy of all of it. */
const AT_ONCE = 256 * 1024;

/** An over-long body is read to its end, without being kept, up to this many times the limit. */
const HEARD_OUT = 16;

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

/** One response, which is there until it is sent or the client goes. */
class Exchange {
  readonly #isLeaving: () => boolean;
  #res: UwsResponse | undefined;
  #done: (() => void) | undefined;
  #sent: (() => void) | undefined;
  #replied = false;

  constructor(res: UwsResponse, isLeaving: () => boolean) {
    this.#isLeaving = isLeaving;
    this.#res = res;
    res.onAborted(() => this.#finish());
  }

  /** Called once: when the reply has been handed over, or cannot be any more. */
  onAborted(done: () => void): void {
    this.#done = done;
  }

  /**
   * Answers a request whose end is not certain, and closes: what follows it is not certain either. In a later
   * turn, since uWebSockets would go on to what came in the same packet as soon as this request has its answer;
   * while it has none, more from the same client is cut off.
   */
  refusesFraming(headers: RequestHead["headers"]): boolean {
    const fault = framingFault(headers);
    if (fault !== undefined) setImmediate(() => this.reply(problem("malformed", fault), true));
    return fault !== undefined;
  }

  /** Never resolves when the client goes, or the body is refused. */
  readBody(maxBytes: number): Promise<Buffer> {
    return new Promise((resolve) => this.#collect(maxBytes, resolve));
  }

  #collect(maxBytes: number, whole: (body: Buffer) => void): void {
    const chunks: Buffer[] = [];
    let bytes = 0;
    this.#res?.onData((chunk, isLast) => {
      if (this.#res === undefined) {
        chunks.length = 0;
        return;
      }
      bytes += chunk.byteLength;
      if (bytes <= maxBytes) {
        // A copy: the chunk is neutered when this returns.
        chunks.push(Buffer.from(Buffer.from(chunk)));
        if (isLast) whole(Buffer.concat(chunks));
        return;
      }
      // Heard out, since a client that is still sending does not read: closed on at once, it would
      // see a reset and no answer. But not for ever.
      chunks.length = 0;
      const isEndless = bytes > HEARD_OUT * maxBytes;
      if (isLast || isEndless) {
        this.reply(problem("too_large", `a body may have ${maxBytes} bytes`), isEndless);
      }
    });
  }

  reply(reply: Reply, close = false): void {
    const res = this.#res;
    if (res === undefined || this.#replied) {
      reply.sent?.();
      return;
    }
    this.#replied = true;
    const isLast = close || this.#isLeaving();
    const { sent } = reply;
    const isLarge = reply.body.length > AT_ONCE;
    const body = isLarge && typeof reply.body === "string" ? Buffer.from(reply.body) : reply.body;
    if (sent !== undefined) this.#sent = sent;
    res.cork(() => {
      res.writeStatus(`${reply.status} ${STATUS_CODES[reply.status] ?? "Status"}`);
      for (const [name, value] of Object.entries(reply.headers)) res.writeHeader(name, value);
      if (isLarge && typeof body !== "string") {
        // `tryEnd` takes no order to close: the header asks the client to.
        if (isLast) res.writeHeader("Connection", "close");
        this.#sendLarge(res, body);
      } else {
        res.end(body, isLast);
        this.#finish();
      }
    });
  }

  /** A stream is no request on its way: its place is given back when it has begun. */
  async stream({ stream }: Streamed, options: SseOptions): Promise<void> {
    const res = this.#res;
    if (res === undefined) return;
    const socket = new SseSocket(res, options);
    this.#sent = () => socket.aborted();
    const reply = await stream(socket);
    if (reply !== undefined) {
      this.reply(reply);
      return;
    }
    this.#giveBack();
  }

  /** Resolves when the response is over, however that comes. */
  park(): Promise<void> {
    this.#giveBack();
    return new Promise((resolve) => {
      if (this.#res === undefined) resolve();
      else this.#sent = resolve;
    });
  }

  #giveBack(): void {
    const done = this.#done;
    this.#done = undefined;
    done?.();
  }

  /** As the socket takes it: the request's place is held until the last byte is taken. */
  #sendLarge(res: UwsResponse, body: Uint8Array): void {
    const total = body.byteLength;
    const [, done] = res.tryEnd(body, total);
    if (done) {
      this.#finish();
      return;
    }
    res.onWritable((offset) => {
      const [ok, isDone] = res.tryEnd(body.subarray(offset), total);
      if (isDone) this.#finish();
      return ok;
    });
  }

  #finish(): void {
    this.#res = undefined;
    const [done, sent] = [this.#done, this.#sent];
    this.#done = undefined;
    this.#sent = undefined;
    done?.();
    sent?.();
  }
}
