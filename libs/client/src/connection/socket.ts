/** A WebSocket of whatever make, reduced to what the connection needs. */
import { SUBPROTOCOL } from "@throughline/protocol";

/** The part of the standard WebSocket that is used; the browsers', Node's and the ws package's all have it. */
export interface WebSocketLike {
  send(data: string): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  addEventListener(
    type: "close",
    listener: (event: { code: number; reason: string }) => void,
  ): void;
  addEventListener(type: "error", listener: (event: object) => void): void;
}

export type WebSocketConstructor = new (
  url: string,
  protocols: string[],
  /** Only the ws package reads it; browsers cannot set headers. */
  init?: { headers: Record<string, string> },
) => WebSocketLike;

export interface SocketHandlers {
  message(text: string): void;
  /** Once, and nothing after it. */
  closed(code: number, reason: string): void;
}

export interface Socket {
  send(text: string): void;
  /** Lets go of it: neither of the handlers is called any more. */
  drop(): void;
}

export interface SocketRequest {
  webSocket: WebSocketConstructor;
  url: string;
  token: string;
  tokenIn: "header" | "subprotocol";
}

/** What HTTP allows in a subprotocol's name; a JWT is made of less. */
const SUBPROTOCOL_TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** @throws where no attempt could succeed: a token that fits no subprotocol, a URL that is none. */
export function openSocket(request: SocketRequest, handlers: SocketHandlers): Socket {
  const socket = construct(request);
  let live = true;
  let failure: Failure | undefined;
  const close = (code: number, reason: string): void => {
    if (!live) return;
    live = false;
    handlers.closed(code, reason);
  };
  socket.addEventListener("message", ({ data }) => {
    // Every frame of the protocol is text; a binary one is nothing that could be acted upon.
    if (live && typeof data === "string") handlers.message(data);
  });
  socket.addEventListener("error", (event) => {
    failure ??= failureOf(event);
  });
  socket.addEventListener("close", ({ code, reason }) =>
    close(failure?.code ?? code, reason === "" ? (failure?.message ?? "") : reason),
  );
  return {
    send: (text) => socket.send(text),
    drop() {
      if (!live) return;
      live = false;
      socket.close(1000);
    },
  };
}

function construct({ webSocket, url, token, tokenIn }: SocketRequest): WebSocketLike {
  if (tokenIn === "header")
    return new webSocket(url, [SUBPROTOCOL], { headers: { authorization: `Bearer ${token}` } });
  if (!SUBPROTOCOL_TOKEN.test(token))
    throw new TypeError("the token has characters that a WebSocket subprotocol cannot carry");
  return new webSocket(url, [SUBPROTOCOL, `bearer.${token}`]);
}

interface Failure {
  /** What the ws package says went wrong; others say nothing. */
  readonly message: string;
  readonly code: number | undefined;
}

function failureOf(event: object): Failure | undefined {
  if (!("message" in event) || typeof event.message !== "string") return undefined;
  return { message: event.message, code: closeCodeOfRefusal(event.message) };
}

/**
 * A refused upgrade has an HTTP status and no close code, and the standard shows neither. The ws package
 * tells the status in its error's text; it is worth reading, since "401" and "gone for a moment" call for
 * different things. Elsewhere such a refusal is a 1006 like any other.
 */
function closeCodeOfRefusal(message: string): number | undefined {
  const status = /^Unexpected server response: (\d{3})$/.exec(message)?.[1];
  if (status === "401") return 4401;
  if (status === "403") return 4403;
  if (status === "429") return 4429;
  return status === undefined ? undefined : 1013;
}
