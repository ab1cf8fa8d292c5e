import { STATUS_CODES } from "node:http";
import type { StreamSocket } from "../session/port.ts";
import { problem, type Reply } from "./problem.ts";
import { framingFault, type RequestHead } from "./request.ts";
import { type SseOptions, SseSocket } from "./sse-socket.ts";
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

/** One response, which is there until it is sent or the client goes. */
export class Exchange {
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
