/**
 * What the session and fan-out rooms need of a transport, and what they offer it.
 * Nothing here knows uWebSockets; tests put a fake socket behind it.
 */

import type { ControlFrame } from "@throughline/protocol";

/** A control frame as the edge makes it. A snapshot's is text from the start: its state is large, and sent to many. */
export type OutgoingFrame = Exclude<ControlFrame, { type: "snapshot" }>;

/**
 * `buffered`: taken, but the kernel's buffer is full; wait for `drained`.
 * `dropped`: not taken, so what the client holds is unknown; the connection must go.
 * `closed`: the socket is gone.
 */
export type SendResult = "sent" | "buffered" | "dropped" | "closed";

export interface Socket {
  send(frame: string | Uint8Array): SendResult;
  /** Bytes that the kernel has not taken yet; 0 on a closed socket. */
  buffered(): number;
  /** Joins the writes made inside into one. */
  cork(write: () => void): void;
  subscribe(topic: string): void;
  unsubscribe(topic: string): void;
  /** Closes with a code; what is buffered is still sent. */
  end(code: number, reason: string): void;
  /** Closes at once, without a close frame: the client sees 1006. */
  close(): void;
}

/** A socket whose other end can be asked for a sign of life. */
export interface ConnectionSocket extends Socket {
  ping(): void;
}

/** A response that goes on for as long as its client listens (SSE). Nothing comes back on it. */
export interface StreamSocket extends Socket {
  /** A control frame that moves the client's place. */
  sendWithId(frame: string, id: string): SendResult;
  /** Moves the client's place, and shows it nothing. */
  place(cursor: string): SendResult;
  /** When a client that is cut off is to come back. */
  retryAfter(ms: number): SendResult;
  /** Shows that the connection is alive. */
  comment(): void;
  /** Keeps a response whose client does not read. To be called every few seconds. */
  hold(): void;
  /** Ends the response once all has gone out that was written. */
  end(): void;
  listen(listener: StreamListener): void;
}

export interface StreamListener {
  /** The kernel took some of what was buffered. */
  drained(): void;
  /** The response is over: the client is gone, or has all. */
  closed(): void;
}

export interface Publisher {
  /** Sends to every socket subscribed to the topic now. Flushed within this turn of the loop. */
  publish(topic: string, frame: Uint8Array): void;
}

/** One client connection, as the transport drives it. */
export interface ConnectionPort {
  /** `bytes`: of the frame's payload, as they came. */
  received(text: string, bytes: number): void;
  /** A frame that cannot be taken: binary, or not UTF-8 text. */
  refused(reason: "binary" | "too_large", bytes: number): void;
  /** The client asks for a sign of life, which the transport has given. */
  pinged(bytes: number): void;
  /** The kernel took some of what was buffered. */
  drained(): void;
  /** Any sign of life that is no frame. */
  heard(): void;
  closed(): void;
}
