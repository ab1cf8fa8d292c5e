import type { SendResult, StreamListener, StreamSocket } from "../session/port.ts";
import {
  COMMENT,
  controlMessage,
  eventMessage,
  opening,
  placeMessage,
  retryMessage,
} from "./sse-format.ts";
import type { StreamTopics } from "./stream-topics.ts";
import type { UwsResponse } from "./uws.ts";

/** What a stream's response begins with. A proxy that buffers or compresses would hold events back. */
export const STREAM_HEADERS: Readonly<Record<string, string>> = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-cache, no-transform",
  "X-Accel-Buffering": "no",
  "X-Content-Type-Options": "nosniff",
};

/** How soon a native EventSource comes back by itself: by chance, so that a dead node's do not come at once. */
const RETRY_MS = { least: 500, spread: 2_000 } as const;

const NOTHING = "";

export interface SseOptions {
  readonly topics: StreamTopics;
  /** Bytes that may wait for the socket; what comes beyond is dropped, and the stream with it. */
  readonly maxBackpressure: number;
  /** Whether this node is going: then nothing further may come on a stream's connection. */
  readonly isLeaving: () => boolean;
  /** Runs its argument when this turn's messages have come: `setImmediate`. */
  readonly afterTurn: (run: () => void) => void;
}

/**
 * A response as a socket: one cork and one write for what a turn of the loop brings. uWebSockets keeps
 * whatever it is given, so after the first write that the kernel does not take whole nothing more is
 * written: it waits here, counted, until the socket is writable.
 */
export class SseSocket implements StreamSocket {
  readonly #options: SseOptions;
  readonly #headers: Readonly<Record<string, string>>;
  #res: UwsResponse | undefined;
  #isHeadWritten = false;
  /** Nothing more is said; what waits still goes out. */
  #isEnding = false;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  /** What uWebSockets may still hold of the last write. */
  #heldBytes = 0;
  #isFlushDue = false;
  #listener: StreamListener | undefined;
  readonly #topics: Set<string> = new Set();

  /** @param headers of every answer to this request */
  constructor(res: UwsResponse, headers: Readonly<Record<string, string>>, options: SseOptions) {
    this.#res = res;
    this.#headers = headers;
    this.#options = options;
  }

  listen(listener: StreamListener): void {
    this.#listener = listener;
  }

  /** To be called first thing when the response is aborted. */
  aborted(): void {
    this.#forget();
    this.#listener?.closed();
  }

  send(frame: string | Uint8Array): SendResult {
    return this.write(
      typeof frame === "string" ? controlMessage(frame, undefined) : eventMessage(frame),
    );
  }

  sendWithId(frame: string, id: string): SendResult {
    return this.write(controlMessage(frame, id));
  }

  place(cursor: string): SendResult {
    return this.write(placeMessage(cursor));
  }

  retryAfter(ms: number): SendResult {
    return this.write(retryMessage(ms));
  }

  /** Nothing where bytes wait: they keep the connection busy as well. */
  comment(): void {
    if (this.#isHeadWritten && this.buffered() === 0) this.write(COMMENT);
  }

  /**
   * uWebSockets gives a response up by itself some 10 s after a write that was not taken whole (30 s on the
   * current build). Handing over what it holds once more, though nothing is added, begins that time anew.
   */
  hold(): void {
    const res = this.#res;
    if (res !== undefined && this.#isHeadWritten) res.cork(() => res.write(NOTHING));
  }

  write(message: Uint8Array): SendResult {
    if (this.#res === undefined || this.#isEnding) return "closed";
    const waiting = this.#heldBytes + this.#waitingBytes;
    if (waiting + message.byteLength > this.#options.maxBackpressure) {
      // A publish has nobody to tell.
      this.close();
      this.#listener?.closed();
      return "dropped";
    }
    this.#waiting.push(message);
    this.#waitingBytes += message.byteLength;
    this.#flushLater();
    return this.#heldBytes > 0 ? "buffered" : "sent";
  }

  buffered(): number {
    return this.#heldBytes === 0 ? 0 : this.#heldBytes + this.#waitingBytes;
  }

  cork(write: () => void): void {
    write();
    this.#flush();
  }

  subscribe(topic: string): void {
    if (this.#res === undefined) return;
    this.#topics.add(topic);
    this.#options.topics.join(topic, this);
  }

  unsubscribe(topic: string): void {
    this.#topics.delete(topic);
    this.#options.topics.leave(topic, this);
  }

  /** A stream has no close codes: what is to be told is told before. */
  end(): void {
    this.#isEnding = true;
    this.#leaveTopics();
    this.#flush();
    this.#endIfDone();
  }

  close(): void {
    const res = this.#res;
    this.#forget();
    res?.close();
  }

  #flushLater(): void {
    if (this.#isFlushDue || this.#heldBytes > 0) return;
    this.#isFlushDue = true;
    this.#options.afterTurn(() => {
      this.#isFlushDue = false;
      this.#flush();
    });
  }

  #flush(): void {
    const res = this.#res;
    if (res === undefined || this.#heldBytes > 0 || this.#waiting.length === 0) return;
    const bytes = this.#waitingBytes;
    const [first] = this.#waiting;
    const all = this.#waiting.length === 1 && first ? first : Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#waitingBytes = 0;
    res.cork(() => {
      if (!this.#isHeadWritten) this.#writeHead(res);
      if (!res.write(all)) this.#heldBytes = bytes;
    });
  }

  #writeHead(res: UwsResponse): void {
    this.#isHeadWritten = true;
    res.writeStatus("200 OK");
    for (const [name, value] of Object.entries({ ...STREAM_HEADERS, ...this.#headers })) {
      res.writeHeader(name, value);
    }
    res.write(opening(RETRY_MS.least + Math.floor(Math.random() * RETRY_MS.spread)));
    res.onWritable(() => {
      this.#writable(res);
      return true;
    });
  }

  /**
   * Some has been taken. Whether all was is seen by another write, which first hands over what uWebSockets
   * holds; without one that would stay where it is.
   */
  #writable(res: UwsResponse): void {
    if (this.#res !== res) return;
    let isFree = false;
    res.cork(() => (isFree = res.write(COMMENT)));
    if (isFree) {
      this.#heldBytes = 0;
      this.#flush();
    }
    this.#listener?.drained();
    this.#endIfDone();
  }

  #endIfDone(): void {
    const res = this.#res;
    if (!this.#isEnding || res === undefined || this.#heldBytes > 0) return;
    this.#forget();
    res.cork(() => res.end(NOTHING, this.#options.isLeaving()));
    this.#listener?.closed();
  }

  #forget(): void {
    this.#res = undefined;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#leaveTopics();
  }

  #leaveTopics(): void {
    for (const topic of this.#topics) this.#options.topics.leave(topic, this);
    this.#topics.clear();
  }
}
