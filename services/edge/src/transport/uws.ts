/**
 * The seam to uWebSockets: the only import of it, and the types of what both builds have.
 *
 * Two native builds exist on the registry. The current one wants glibc 2.38; the older one runs
 * on older systems, but where its binary does not load, its package silently falls back to a
 * JavaScript imitation. So the older package's `.node` file is required itself, never its entry.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

export interface UwsSocket<UserData> {
  /** 1 sent, 0 buffered, 2 dropped: the socket is over `maxBackpressure`. */
  send(message: string | Uint8Array, isBinary?: boolean, compress?: boolean): number;
  getBufferedAmount(): number;
  end(code?: number, reason?: string): void;
  close(): void;
  ping(message?: string): number;
  subscribe(topic: string): boolean;
  unsubscribe(topic: string): boolean;
  cork(write: () => void): unknown;
  /** The only method that does not throw once the socket is closed. */
  getUserData(): UserData;
}

export interface UwsResponse {
  writeStatus(status: string): UwsResponse;
  writeHeader(name: string, value: string): UwsResponse;
  end(body?: string | Uint8Array, closeConnection?: boolean): UwsResponse;
  /** Without an argument: the older build sends nothing where there is one. */
  endWithoutBody(): UwsResponse;
  /** A chunk of a body without a length. False: not all was taken, and uWebSockets keeps the rest. */
  write(chunk: string | Uint8Array): boolean;
  /** Takes what the socket takes. `[all was taken, the response is complete]`; the rest is for `onWritable`. */
  tryEnd(body: Uint8Array, totalBytes: number): readonly [ok: boolean, done: boolean];
  /** `offset`: of the body, how much has been taken. Returns whether all that was offered was taken. */
  onWritable(handler: (offset: number) => boolean): UwsResponse;
  close(): UwsResponse;
  onAborted(handler: () => void): UwsResponse;
  /** The chunk is neutered when the handler returns. */
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): UwsResponse;
  getRemoteAddressAsText(): ArrayBuffer;
  cork(write: () => void): UwsResponse;
  upgrade<UserData>(
    userData: UserData,
    key: string,
    protocol: string,
    extensions: string,
    context: UwsSocketContext,
  ): void;
}

/** Lives on the stack of the native caller: dead after the handler returns or first awaits. */
export interface UwsRequest {
  getHeader(lowerCaseName: string): string;
  getParameter(index: number): string | undefined;
  getUrl(): string;
  getMethod(): string;
  /** `undefined` when the URL has no `?`. */
  getQuery(): string | undefined;
  forEach(each: (name: string, value: string) => void): void;
}

export interface UwsSocketContext {
  readonly brand?: "uws socket context";
}

export interface UwsListenSocket {
  readonly brand?: "uws listen socket";
}

export interface UwsBehavior<UserData> {
  readonly maxPayloadLength: number;
  readonly maxBackpressure: number;
  readonly closeOnBackpressureLimit: boolean;
  readonly idleTimeout: number;
  readonly sendPingsAutomatically: boolean;
  readonly compression: number;
  upgrade(res: UwsResponse, req: UwsRequest, context: UwsSocketContext): void;
  open(ws: UwsSocket<UserData>): void;
  message(ws: UwsSocket<UserData>, message: ArrayBuffer, isBinary: boolean): void;
  drain(ws: UwsSocket<UserData>): void;
  /** Answered by uWebSockets. */
  ping(ws: UwsSocket<UserData>, message: ArrayBuffer): void;
  pong(ws: UwsSocket<UserData>): void;
  close(ws: UwsSocket<UserData>, code: number): void;
}

type HttpHandler = (res: UwsResponse, req: UwsRequest) => void;

export interface UwsApp {
  get(pattern: string, handler: HttpHandler): UwsApp;
  post(pattern: string, handler: HttpHandler): UwsApp;
  any(pattern: string, handler: HttpHandler): UwsApp;
  ws<UserData>(pattern: string, behavior: UwsBehavior<UserData>): UwsApp;
  /** Closes all sockets at once, idle HTTP connections and listeners too. */
  close(): UwsApp;
  publish(
    topic: string,
    message: string | Uint8Array,
    isBinary?: boolean,
    compress?: boolean,
  ): boolean;
  listen(
    host: string,
    port: number,
    options: number,
    done: (listener: UwsListenSocket | false) => void,
  ): UwsApp;
}

interface UwsModule {
  App(): UwsApp;
  us_listen_socket_close(listener: UwsListenSocket): void;
  us_socket_local_port(listener: UwsListenSocket): number;
}

export interface Uws {
  readonly module: UwsModule;
  /** Which build was taken, to be logged at start. */
  readonly build: string;
}

/** What `listen` takes as its options: one process a port, or SO_REUSEPORT. */
export const LISTEN = { shared: 0, exclusive: 1 } as const;

/** No build runs here. The message says what was tried and what to do. */
export class UwsUnavailable extends Error {
  override readonly name = "UwsUnavailable";
}

const CURRENT = "@btc-vision/uwebsockets.js";
const OLDER = "@trufflesuite/uws-js-unofficial";
const binary = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;

const CANDIDATES: readonly { readonly name: string; readonly path: string }[] = [
  { name: "uWebSockets.js 20.57 (current build)", path: `${CURRENT}/${binary}` },
  { name: "uWebSockets.js 20.30 (older build)", path: `${OLDER}/binaries/${binary}` },
];

/**
 * Loads the newest native build that runs on this system.
 * Throws UwsUnavailable where none does.
 */
export function loadUws(candidates: readonly { name: string; path: string }[] = CANDIDATES): Uws {
  const require = createRequire(import.meta.url);
  const failures: string[] = [];
  for (const { name, path } of candidates) {
    try {
      const module: unknown = require(resolveBinary(require, path));
      if (isNative(module)) return { module, build: name };
      failures.push(`${name}: ${path} is not the native addon`);
    } catch (error) {
      failures.push(
        `${name}: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`,
      );
    }
  }
  throw new UwsUnavailable(
    `No native uWebSockets.js build runs on ${process.platform} ${process.arch} with Node ${process.version}.\n` +
      failures.map((failure) => `  - ${failure}\n`).join("") +
      "Use Node 20 on glibc Linux or macOS, or a system with glibc 2.38 or newer (Debian 13, Ubuntu 24.04).",
  );
}

/** A package may export its entry only: the addon lies beside its `package.json` on the search path. */
function resolveBinary(require: NodeJS.Require, path: string): string {
  const name = path.split("/").slice(0, 2).join("/");
  for (const folder of require.resolve.paths(name) ?? []) {
    const file = `${folder}/${path}`;
    if (existsSync(file)) return file;
  }
  throw new Error(`${path} is not installed`);
}

function isNative(module: unknown): module is UwsModule {
  if (typeof module !== "object" || module === null || !("App" in module)) return false;
  if (typeof module.App !== "function") return false;
  // The imitation's class is named TemplatedApp; the addon's is the native "uWS.App".
  const app: unknown = Reflect.apply(module.App, undefined, []);
  return typeof app === "object" && app !== null && app.constructor.name === "uWS.App";
}
