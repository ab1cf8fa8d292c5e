/** The admin port: health, readiness and metrics, for the machinery around a service and never for clients. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Logger } from "./log.ts";
import type { Metrics } from "./metrics.ts";

/** `checks` says why, for a person: `{ nats: "disconnected" }`. */
export interface Health {
  ok: boolean;
  checks?: Record<string, string>;
}

export interface AdminOptions {
  /** Loopback unless said otherwise. */
  host?: string;
  /** 0: any free one. */
  port: number;
  /** Should it be restarted? "No" (`ok: true`) while the process can still do its work. */
  healthz?: () => Health;
  /** Should it get new clients? */
  readyz: () => Health;
  metrics: Pick<Metrics, "text" | "contentType">;
  log: Pick<Logger, "error">;
}

export interface AdminServer {
  readonly port: number;
  readonly close: () => Promise<void>;
}

type Answer = { status: number; type: string; body: string };

/** Listens; rejects when the port is taken. */
export async function adminServer(options: AdminOptions): Promise<AdminServer> {
  const { healthz = () => ({ ok: true }), readyz, metrics, log } = options;
  const routes: Record<string, () => Answer | Promise<Answer>> = {
    "/healthz": () => health(healthz()),
    "/readyz": () => health(readyz()),
    "/metrics": async () => ({
      status: 200,
      type: metrics.contentType,
      body: await metrics.text(),
    }),
  };

  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const route = routes[(request.url ?? "/").split("?")[0] ?? "/"];
    if (route === undefined) return text(404, "not found");
    if (request.method !== "GET" && request.method !== "HEAD") return text(405, "only GET");
    try {
      return await route();
    } catch (error) {
      log.error({ err: error, url: request.url }, "an admin request failed");
      return text(500, "failed; see the log");
    }
  };

  const server = createServer((request, response) => {
    void answer(request).then((result) => send(response, result));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.host ?? "127.0.0.1", () => {
      server.removeListener("error", reject);
      resolve();
    });
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections(); // a scraper's kept-alive connection would hold the process
      }),
  };
}

function health({ ok, checks = {} }: Health): Answer {
  return { status: ok ? 200 : 503, type: "application/json", body: JSON.stringify({ ok, checks }) };
}

function text(status: number, body: string): Answer {
  return { status, type: "text/plain", body };
}

function send(response: ServerResponse, { status, type, body }: Answer): void {
  response.writeHead(status, {
    "content-type": type,
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
  });
  response.end(body);
}
