import { STATUS_CODES } from "node:http";
import type { StreamSocket } from "../session/port.ts";
import { type AllowsOrigin, corsHeaders } from "./cors.ts";
import { problem, type Reply } from "./problem.ts";
import { framingFault, type RequestHead } from "./request.ts";
import { type SseOptions, SseSocket, STREAM_HEADERS } from "./sse-socket.ts";
import type { UwsResponse } from "./uws.ts";

/** A larger body is handed over as the socket takes it: uWebSockets would keep a copy of all of it. */
const AT_ONCE = 256 * 1024;

/** An over-long body is read to its end, without being kept, up to this many times the limit. */
const HEARD_OUT = 16;

/**
 * An answer that goes on. Resolves with a reply where there is nothing to stream, before anything was; "cut"
 * ends the connection without any.
 */
export interface Streamed {
  readonly stream: (socket: StreamSocket) => Promise<Reply | "cut" | undefined>;
}

export interface ExchangeOptions {
  /**
   * Whether this node is going: then each answer is the last on its connection, so that no client and no
   * load balancer puts a further request on one that is about to close.
   */
  readonly isLeaving: () => boolean;
  readonly allowsOrigin: AllowsOrigin;
  readonly streaming: SseOptions;
}

/** One response, which is there until it is sent or the client goes. */
export class Exchange {
  readonly #options: ExchangeOptions;
  #res: UwsResponse | undefined;
  /** Of every answer to this request. */
  #headers: Readonly<Record<string, string>> = {};
  #isHead = false;
  #done: (() => void) | undefined;
  #sent: (() => void) | undefined;
  #replied = false;

  constructor(res: UwsResponse, options: ExchangeOptions) {
    this.#options = options;
    this.#res = res;
    res.onAborted(() => this.#finish());
  }

  /** To be called before any reply. */
  asked(method: string, headers: RequestHead["headers"]): void {
    this.#isHead = method === "head";
    this.#headers = corsHeaders(headers, this.#options.allowsOrigin);
  }

  /** Only the answer's head is asked for. */
  get isHead(): boolean {
    return this.#isHead;
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
    const isLast = close || this.#options.isLeaving();
    const { sent } = reply;
    const isLarge = reply.body.length > AT_ONCE;
    const body = isLarge && typeof reply.body === "string" ? Buffer.from(reply.body) : reply.body;
    // A 204 has no body to give the length of.
    const hasLength = reply.status !== 204;
    if (sent !== undefined) this.#sent = sent;
    res.cork(() => {
      this.#writeHead(res, reply);
      // Here and with `tryEnd` there is no order to close: the header asks the client to.
      if (this.#isHead || !hasLength) {
        if (isLast) res.writeHeader("Connection", "close");
        if (hasLength) res.writeHeader("Content-Length", String(Buffer.byteLength(body)));
        res.endWithoutBody();
        this.#finish();
      } else if (isLarge && typeof body !== "string") {
        if (isLast) res.writeHeader("Connection", "close");
        this.#sendLarge(res, body);
      } else {
        res.end(body, isLast);
        this.#finish();
      }
    });
  }

  #writeHead(res: UwsResponse, { status, headers }: Pick<Reply, "status" | "headers">): void {
    res.writeStatus(`${status} ${STATUS_CODES[status] ?? "Status"}`);
    for (const [name, value] of Object.entries(headers)) res.writeHeader(name, value);
    for (const [name, value] of Object.entries(this.#headers)) res.writeHeader(name, value);
  }

  /** A stream is no request on its way: its place is given back when it has begun. */
  async stream({ stream }: Streamed): Promise<void> {
    const res = this.#res;
    if (res === undefined) return;
    if (this.#isHead) {
      res.cork(() => {
        this.#writeHead(res, { status: 200, headers: STREAM_HEADERS });
        res.endWithoutBody();
      });
      this.#finish();
      return;
    }
    const socket = new SseSocket(res, this.#headers, this.#options.streaming);
    this.#sent = () => socket.aborted();
    const reply = await stream(socket);
    if (reply === "cut") {
      this.#res?.close();
      return;
    }
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
