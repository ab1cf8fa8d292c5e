/** The client for Node: brings the ws package, and sends the token as the header `Authorization`. */
import { WebSocket } from "ws";
import { type Client, createClient as createBrowserClient } from "./client.ts";
import type { ClientOptions } from "./options.ts";

/** @throws {TypeError} on options that cannot work */
export function createClient(options: Omit<ClientOptions, "webSocket" | "tokenIn">): Client {
  return createBrowserClient({ ...options, webSocket: WebSocket, tokenIn: "header" });
}

export * from "./index.ts";
