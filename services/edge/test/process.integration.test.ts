import {
  eventually,
  freePort,
  startEdge,
  startNats,
  type Edge,
  type NatsServer,
} from "@throughline/testkit";
import { spawn } from "node:child_process";
import { Agent, request } from "node:http";
import { createConnection } from "node:net";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const MAIN = fileURLToPath(new URL("../dist/main.js", import.meta.url));
let nats: NatsServer;

beforeAll(async () => {
  nats = await startNats();
});
afterAll(() => nats.dispose());

/** Runs the service until it exits by itself. */
function start(env: Record<string, string>): Promise<{ code: number | null; stderr: string }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [MAIN], {
      env: { PATH: process.env["PATH"], TL_NATS_URL: nats.url, TL_ADMIN_PORT: "0", ...env },
    });
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString("utf8")));
    child.on("exit", (code) => resolve({ code, stderr }));
  });
}

async function connect(port: number): Promise<WebSocket> {
  return (await connected(port)).ws;
}

function connected(port: number): Promise<{ ws: WebSocket; welcome: { node: string } }> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`, [
      "throughline.v1",
      "bearer.dev.acme.ann",
    ]);
    ws.once("message", (data: Buffer) =>
      resolve({ ws, welcome: JSON.parse(data.toString("utf8")) }),
    );
    ws.once("error", reject);
  });
}

function get(
  agent: Agent,
  url: string,
): Promise<{ status: number | undefined; connection: string | undefined; reused: boolean }> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: "Bearer dev.acme.ann" };
    const sent = request(url, { agent, headers }, (response) => {
      response.resume();
      response.on("end", () => {
        const { connection } = response.headers;
        const kept = connection === "keep-alive" ? undefined : connection;
        resolve({ status: response.statusCode, connection: kept, reused: sent.reusedSocket });
      });
    });
    sent.on("error", reject).end();
  });
}

describe("the process", () => {
  test("[LIFE1] a taken port ends the start with a text that names it and its setting", async () => {
    const edge = await startEdge({ natsUrl: nats.url });
    const own = await start({ TL_PORT: String(edge.port) });
    expect(own.code).toBe(1);
    expect(own.stderr).toMatch(new RegExp(`cannot listen on 127.0.0.1:${edge.port}.*TL_PORT`));
    const shared = await start({ TL_PORT: "0", TL_SHARED_PORT: String(edge.port) });
    expect(shared.stderr).toMatch(
      new RegExp(`cannot listen on 127.0.0.1:${edge.port}.*TL_SHARED_PORT`),
    );
    const admin = await start({ TL_PORT: "0", TL_ADMIN_PORT: new URL(edge.adminUrl).port });
    expect(admin.code).toBe(1);
    expect(admin.stderr).toContain(new URL(edge.adminUrl).port);
    await edge.dispose();
  });

  test("[LIFE1] wrong settings are all named at once", async () => {
    const { code, stderr } = await start({ TL_PORT: "eighty", TL_DEV_TOKENS: "maybe" });
    expect(code).toBe(1);
    expect(stderr).toContain("TL_PORT");
    expect(stderr).toContain("TL_DEV_TOKENS");
  });

  test("[LIFE1] [INV10] two processes share a port; when one is killed the other takes its clients", async () => {
    const sharedPort = await freePort();
    const edges: Edge[] = [];
    for (let i = 0; i < 2; i += 1) edges.push(await startEdge({ natsUrl: nats.url, sharedPort }));
    const sockets = await Promise.all(Array.from({ length: 20 }, () => connect(sharedPort)));
    const counts = await Promise.all(edges.map(connections));
    expect(counts[0]! + counts[1]!).toBe(20);
    expect(Math.min(...counts)).toBeGreaterThan(0);
    let cut = 0;
    for (const ws of sockets) ws.on("close", () => (cut += 1)).on("error", () => undefined);
    await edges[0]!.kill();
    await eventually(() => cut === counts[0]);
    const back = await Promise.all(Array.from({ length: counts[0]! }, () => connect(sharedPort)));
    expect(await connections(edges[1]!)).toBe(20);
    for (const ws of [...sockets, ...back]) ws.terminate();
    await edges[1]!.dispose();
  });

  test("[LIFE1] [LIFE3] one of two on a shared port is told to stop: who connects meanwhile gets in, at either", async () => {
    const sharedPort = await freePort();
    const env = { TL_DRAIN_DELAY_MS: "300", TL_DRAIN_MS: "500" };
    const [going, staying] = await Promise.all(
      [0, 1].map(() => startEdge({ natsUrl: nats.url, sharedPort, env })),
    );
    if (!going || !staying) throw new Error("two edges are wanted");
    let tried = 0;
    let again = 0;
    let isGoing = true;
    const lane = async (): Promise<void> => {
      while (isGoing) {
        tried += 1;
        try {
          (await connect(sharedPort)).terminate();
        } catch {
          // What the kernel had queued for the port that was just closed. The next one finds the other.
          again += 1;
          (await connect(sharedPort)).terminate();
        }
      }
    };
    const lanes = [lane(), lane(), lane(), lane()];
    expect((await going.stop()).code).toBe(0);
    isGoing = false;
    await Promise.all(lanes);
    console.log(
      `${tried} connects while one of two edges on a port drained: ${again} had to be tried again`,
    );
    expect(tried).toBeGreaterThan(20);
    // Those that were under way in the one moment, at the most.
    expect(again).toBeLessThanOrEqual(lanes.length);
    await staying.dispose();
  });

  test("[LIFE8] without a name each process has its own, in `welcome` and on every series", async () => {
    const names: string[] = [];
    const sharedPort = await freePort();
    const edges = [0, 1].map(() =>
      startEdge({ natsUrl: nats.url, sharedPort, env: { TL_NODE_ID: "" } }),
    );
    for (const edge of await Promise.all(edges)) {
      const { ws, welcome } = await connected(edge.port);
      ws.terminate();
      const scrape = await (await fetch(`${edge.adminUrl}/metrics`)).text();
      const series = scrape.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
      expect(series.filter((line) => !line.includes(`node="${welcome.node}"`))).toEqual([]);
      expect(scrape).toMatch(
        /^throughline_edge_info\{version="\d.*",uws="uWebSockets.js .*"\} 1$/m,
      );
      names.push(welcome.node);
      await edge.dispose();
    }
    expect(new Set(names).size).toBe(2);
  });

  test("[LIFE7] HTTP connections that are kept alive are ended by the next answer once the node leaves", async () => {
    const edge = await startEdge({ natsUrl: nats.url, env: { TL_DRAIN_DELAY_MS: "2000" } });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const before = await get(agent, `${edge.url}/v1/sessions`);
    expect([before.status, before.connection]).toEqual([200, undefined]);
    const left = edge.stop();
    await eventually(async () => (await fetch(`${edge.adminUrl}/readyz`)).status === 503);
    const last = await get(agent, `${edge.url}/v1/sessions`);
    expect([last.status, last.connection, last.reused]).toEqual([200, "close", true]);
    // Further requests are served all the same, while connections are taken.
    expect(await get(agent, `${edge.url}/v1/nothing`)).toMatchObject({
      status: 404,
      reused: false,
    });
    agent.destroy();
    expect((await left).code).toBe(0);
  });

  test("[LIFE7] an upgrade over a kept-alive connection is cut off once the node does not listen any more", async () => {
    const edge = await startEdge({ natsUrl: nats.url });
    const staying = await connect(edge.port); // it does not heed the goaway, and so holds up the end
    const kept = createConnection(edge.port, "127.0.0.1");
    let got = "";
    kept.on("data", (data) => (got += data.toString("latin1")));
    const ended = new Promise((resolve) => kept.on("close", resolve));
    const head = "Host: localhost\r\nAuthorization: Bearer dev.acme.ann\r\n";
    kept.write(`GET /v1/sessions HTTP/1.1\r\n${head}\r\n`);
    await eventually(() => got.includes("200 OK"));
    const left = edge.stop();
    await eventually(() =>
      connect(edge.port).then(
        (ws) => {
          ws.terminate();
          return false;
        },
        () => true,
      ),
    );
    got = "";
    const key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    kept.write(
      `GET /v1/connect HTTP/1.1\r\n${head}Connection: Upgrade\r\nUpgrade: websocket\r\n${key}\r\n`,
    );
    await ended;
    expect(got).toBe("");
    expect(staying.readyState).toBe(WebSocket.OPEN);
    await left;
  });

  test("[LIFE3] [AUTH1] SIGTERM: not ready, goaway, 1012, exit 0; dev tokens only where they are allowed", async () => {
    const edge = await startEdge({ natsUrl: nats.url, env: { TL_DRAIN_DELAY_MS: "300" } });
    const ws = await connect(edge.port);
    const frames: string[] = [];
    ws.on("message", (data: Buffer) => frames.push(data.toString("utf8")));
    const closed = new Promise<number>((resolve) => ws.on("close", resolve));
    process.kill(edge.pid, "SIGTERM");
    await eventually(async () => (await fetch(`${edge.adminUrl}/readyz`)).status === 503);
    expect(await closed).toBe(1012);
    expect(frames.some((frame) => frame.includes('"goaway"'))).toBe(true);
    const exit = await edge.exited;
    expect(exit.code).toBe(0);
    const strict = await startEdge({ natsUrl: nats.url, env: { TL_DEV_TOKENS: "0" } });
    const refused = new WebSocket(`ws://127.0.0.1:${strict.port}/v1/connect`, [
      "throughline.v1",
      "bearer.dev.acme.ann",
    ]);
    expect(await new Promise((resolve) => refused.on("close", resolve))).toBe(4401);
    await strict.dispose();
  });
});

async function connections(edge: Edge): Promise<number> {
  const text = await (await fetch(`${edge.adminUrl}/metrics`)).text();
  return Number(/^throughline_edge_connections\{.*\} (\d+)$/m.exec(text)?.[1]);
}
