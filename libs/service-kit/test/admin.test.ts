import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, it } from "vitest";
import {
  adminServer,
  type AdminServer,
  createMetrics,
  type Health,
} from "@throughline/service-kit";

let admin: AdminServer;
let ready: Health;
let live: Health | (() => never);
const logged: unknown[] = [];

async function start(): Promise<string> {
  ready = { ok: true };
  live = { ok: true };
  logged.length = 0;
  const metrics = createMetrics({});
  metrics.counter("throughline_frames_total", "Frames.").value = 3;
  admin = await adminServer({
    port: 0,
    readyz: () => ready,
    healthz: () => (typeof live === "function" ? live() : live),
    metrics,
    log: { error: (fields: unknown) => void logged.push(fields) },
  });
  return `http://127.0.0.1:${admin.port}`;
}

afterEach(() => admin.close());

describe("the admin port", () => {
  it("[ADM1] says whether the service is healthy and ready, and why not", async () => {
    const url = await start();
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    ready = { ok: false, checks: { nats: "disconnected" } };
    const answer = await fetch(`${url}/readyz?verbose`);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toEqual({ ok: false, checks: { nats: "disconnected" } });
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  it("[ADM2] serves metrics in Prometheus' text format", async () => {
    const answer = await fetch(`${await start()}/metrics`);
    expect(answer.headers.get("content-type")).toContain("text/plain; version=0.0.4");
    expect(await answer.text()).toContain("throughline_frames_total 3\n");
  });

  it("[ADM3] answers nothing else, and a failing check with 500 and a line in the log", async () => {
    const url = await start();
    expect((await fetch(`${url}/`)).status).toBe(404);
    expect((await fetch(`${url}/constructor`)).status).toBe(404);
    expect((await fetch(`${url}/metrics`, { method: "POST" })).status).toBe(405);
    live = () => {
      throw new Error("broken check");
    };
    expect((await fetch(`${url}/healthz`)).status).toBe(500);
    expect(logged).toMatchObject([{ err: { message: "broken check" }, url: "/healthz" }]);
  });

  it("[ADM4] listens on loopback only, unless told otherwise", async () => {
    await start();
    const outside = Object.values(networkInterfaces())
      .flatMap((list) => list ?? [])
      .find(({ family, internal }) => family === "IPv4" && !internal)?.address;
    if (outside === undefined) return; // a machine without a network has nobody outside
    await expect(fetch(`http://${outside}:${admin.port}/healthz`)).rejects.toThrow();
  });

  it("[ADM5] rejects when its port is taken", async () => {
    await start();
    const { port } = admin;
    const metrics = createMetrics({});
    const second = adminServer({
      port,
      readyz: () => ready,
      metrics,
      log: { error: () => undefined },
    });
    await expect(second).rejects.toThrow("EADDRINUSE");
  });
});
