import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  eventually,
  freePort,
  type NatsServer,
  startEdge,
  startNats,
  startRuntime,
} from "@throughline/testkit";

let nats: NatsServer;
beforeAll(async () => {
  nats = await startNats();
});
afterAll(() => nats.dispose());

const statusOf = async (url: string): Promise<number> => (await fetch(url)).status;

describe("our own services", () => {
  it("[KIT12] an edge is a process from dist, ready when handed out, on the same ports after a restart", async () => {
    const sharedPort = await freePort();
    const edge = await startEdge({ natsUrl: nats.url, sharedPort });
    expect(await statusOf(`${edge.adminUrl}/readyz`)).toBe(200);
    expect(await statusOf(`${edge.url}/v1/connect`)).toBe(426);
    expect(await statusOf(`http://127.0.0.1:${sharedPort}/v1/connect`)).toBe(426);
    const first = edge.pid;
    await edge.kill();
    await edge.restart();
    expect(edge.pid).not.toBe(first);
    expect(await statusOf(`${edge.adminUrl}/readyz`)).toBe(200);
    expect((await edge.stop()).code).toBe(0);
  });

  it("[KIT12] a runtime is too, and can be frozen", async () => {
    const runtime = await startRuntime({ natsUrl: nats.url, allowedRoots: [process.cwd()] });
    await runtime.pause();
    await expect(
      fetch(`${runtime.adminUrl}/readyz`, { signal: AbortSignal.timeout(300) }),
    ).rejects.toThrow();
    runtime.resume();
    await eventually(async () => (await statusOf(`${runtime.adminUrl}/readyz`)) === 200);
    expect((await runtime.stop()).code).toBe(0);
  });

  it("[KIT12] one that cannot start rejects with its own words", async () => {
    await expect(startEdge({ natsUrl: nats.url, env: { TL_SHARDS: "none" } })).rejects.toThrow(
      "TL_SHARDS",
    );
  });
});
