/** What a client is made with, checked and completed. */
import { type Clock, systemClock } from "./clock.ts";
import type { ConnectionOptions } from "./connection/connection.ts";
import type { ClientStorage } from "./tools/journal.ts";
import type { ClientTools } from "./tools/tool.ts";
import type { WebSocketConstructor } from "./connection/socket.ts";

export interface ClientOptions {
  /** Of an edge, e.g. `https://edge.example` or `ws://127.0.0.1:8080`; without a path, `/v1/connect` is taken. */
  url?: string;
  /** Several: the next one is tried after each failure. */
  urls?: readonly string[];
  /**
   * Asked before each attempt to connect, so give one that is fresh; or a fixed text, and then the
   * client ends when the server no longer takes it. Never part of the URL.
   */
  token: string | (() => Promise<string>);
  /** Where `globalThis` has none (Node before 22): the class, e.g. of the ws package. */
  webSocket?: WebSocketConstructor;
  /** How the token travels. `header` only with a class that takes headers as its third argument, as ws does. */
  tokenIn?: "header" | "subprotocol";
  /** Tools that this client executes, by name; their schemas go with every run that it starts. */
  tools?: ClientTools;
  /** Where what must outlive a reload is kept, e.g. `localStorage`: what was begun of tools' calls. */
  storage?: ClientStorage;
  /** Full jitter: a wait is uniform between 0 and `baseMs` (500) doubled per attempt, `capMs` (30,000) at most. */
  reconnect?: { baseMs?: number; capMs?: number };
  /** In [0, 1), for the jitter. */
  random?: () => number;
  clock?: Clock;
}

const BASE_MS = 500;
const CAP_MS = 30_000;

/** @throws {TypeError} on options that cannot work */
export function resolveOptions(options: ClientOptions): ConnectionOptions {
  const given = options.urls ?? (options.url === undefined ? [] : [options.url]);
  if (given.length === 0) throw new TypeError("createClient needs a url");
  const webSocket = options.webSocket ?? globalWebSocket();
  return {
    urls: given.map(connectUrl),
    token: options.token,
    tokenIn: options.tokenIn ?? "subprotocol",
    webSocket,
    reconnect: {
      baseMs: options.reconnect?.baseMs ?? BASE_MS,
      capMs: options.reconnect?.capMs ?? CAP_MS,
    },
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
  };
}

function connectUrl(text: string): string {
  const url = new URL(text);
  const scheme = SCHEMES[url.protocol];
  if (scheme === undefined)
    throw new TypeError(`${url.protocol}// is no scheme of an edge: ${text}`);
  url.protocol = scheme;
  if (url.pathname === "/" || url.pathname === "") url.pathname = "/v1/connect";
  // A URL ends up in logs of every proxy on the way.
  if (url.searchParams.has("token") || url.username !== "" || url.password !== "")
    throw new TypeError("credentials do not belong into the URL; give them as token");
  return url.href;
}

const SCHEMES: Readonly<Record<string, string>> = {
  "ws:": "ws:",
  "wss:": "wss:",
  "http:": "ws:",
  "https:": "wss:",
};

function globalWebSocket(): WebSocketConstructor {
  // Typed as always there by the DOM's declarations; Node 20 has none.
  const found: WebSocketConstructor | undefined = globalThis.WebSocket;
  if (found !== undefined) return found;
  throw new TypeError(
    'this runtime has no WebSocket: import createClient from "@throughline/client/node", or pass one as webSocket (e.g. the ws package)',
  );
}
