/**
 * Role: the yardstick. A uWebSockets server that publishes ready-made frames on the same schedule as
 * the run writers append: the least that any server on this library could spend on a delivery.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { eventAt, type Paced, paced, type Pattern } from "../figures/pace.ts";
import { serve } from "@throughline/testkit";

interface Socket {
  send(message: string): number;
  subscribe(topic: string): boolean;
}

interface Response {
  upgrade(data: object, key: string, protocol: string, extensions: string, context: unknown): void;
}

interface Request {
  getHeader(name: string): string;
}

interface App {
  ws(
    pattern: string,
    behavior: {
      compression: number;
      maxPayloadLength: number;
      maxBackpressure: number;
      closeOnBackpressureLimit: boolean;
      idleTimeout: number;
      sendPingsAutomatically: boolean;
      upgrade(response: Response, request: Request, context: unknown): void;
      open(socket: Socket): void;
      message(socket: Socket, message: ArrayBuffer): void;
    },
  ): App;
  publish(topic: string, message: Uint8Array, isBinary: boolean): boolean;
  listen(host: string, port: number, done: (listener: unknown) => void): App;
}

interface Uws {
  App(): App;
  us_socket_local_port(listener: unknown): number;
}

/** Sizes of the frames, so that they are those of the edge. */
export interface FrameSizes {
  readonly durable: number;
  readonly delta: number;
}

export type BareMethods = {
  readonly listen: (q: object) => Promise<{ port: number; build: string }>;
  /** Publishes the pattern's events on the runs' topics. */
  readonly burst: (q: {
    topics: readonly string[];
    pattern: Pattern;
    sizes: FrameSizes;
  }) => Promise<Paced>;
};

const { uws, build } = loadUws();
const app = uws.App();

const methods: BareMethods = {
  listen: () =>
    new Promise((resolve, reject) => {
      serveViewers(app);
      app.listen("127.0.0.1", 0, (listener) => {
        if (!listener) reject(new Error("the bare server cannot listen"));
        else resolve({ port: uws.us_socket_local_port(listener), build });
      });
    }),

  burst: ({ topics, pattern, sizes }) => {
    const frames = {
      durable: frame('{"type":"custom","pad":"', sizes.durable),
      delta: frame('{"type":"model.delta","pad":"', sizes.delta),
    };
    return paced(pattern, (i) => {
      const { run, durable } = eventAt(i, pattern);
      app.publish(topics[run] ?? "", durable ? frames.durable : frames.delta, false);
    });
  },
};

serve(methods);

function serveViewers(server: App): void {
  server.ws("/v1/connect", {
    compression: 0,
    maxPayloadLength: 64 * 1024,
    maxBackpressure: 8 * 1024 * 1024,
    closeOnBackpressureLimit: true,
    idleTimeout: 60,
    sendPingsAutomatically: true,
    upgrade: (response, request, context) => {
      const key = request.getHeader("sec-websocket-key");
      const protocol = request.getHeader("sec-websocket-protocol");
      const extensions = request.getHeader("sec-websocket-extensions");
      response.upgrade({}, key, protocol, extensions, context);
    },
    open: (socket) => {
      socket.send('{"type":"welcome"}');
    },
    message: (socket, message) => {
      const command = JSON.parse(Buffer.from(message).toString("utf8")) as Record<string, unknown>;
      socket.subscribe(String(command["run_id"]));
      socket.send('{"type":"caught_up"}');
    },
  });
}

/** JSON of exactly `bytes` bytes. */
function frame(head: string, bytes: number): Uint8Array {
  const padding = Math.max(0, bytes - head.length - 2);
  return Buffer.from(`${head}${"x".repeat(padding)}"}`);
}

/** The native build that the edge takes here, from where it takes it: the current one, else the older; never the imitation. */
function loadUws(): { uws: Uws; build: string } {
  const require = createRequire(new URL("../../../../services/edge/package.json", import.meta.url));
  const binary = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;
  const tried: string[] = [];
  for (const [name, file] of [
    ["@btc-vision/uwebsockets.js", binary],
    ["@trufflesuite/uws-js-unofficial", `binaries/${binary}`],
  ] as const) {
    for (const folder of require.resolve.paths(name) ?? []) {
      const path = `${folder}/${name}/${file}`;
      if (!existsSync(path)) continue;
      try {
        return { uws: require(path) as Uws, build: name };
      } catch (error) {
        tried.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
  throw new Error(`no native uWebSockets build loads here: ${tried.join("; ")}`);
}
