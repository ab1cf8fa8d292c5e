import { connect } from "node:net";
import { existsSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import {
  eventually,
  type NatsServer,
  startNats,
  startNatsCluster,
  startRedis,
} from "@throughline/testkit";

const disposals: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const dispose of disposals) await dispose();
});

async function nats(): Promise<NatsServer> {
  const server = await startNats();
  disposals.push(server.dispose);
  return server;
}

/** The first line that a server sends on a new connection; NATS greets with INFO. */
function greeting(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    socket.setTimeout(500, () => socket.destroy(new Error("no greeting")));
    socket.once("error", reject);
    socket.once("data", (data) => {
      socket.destroy();
      resolve(data.toString());
    });
  });
}

describe("a single nats-server", () => {
  it("[KIT1] is ready with JetStream on disk when the launcher resolves", async () => {
    const server = await nats();
    expect(await greeting(server.port)).toContain('"jetstream":true');
    expect(await server.monitor("/jsz")).toMatchObject({
      config: { store_dir: expect.stringContaining(server.dir) },
    });
  });

  it("[KIT2] comes back on the same port and folder after kill and after stop", async () => {
    const server = await nats();
    const first = server.pid;
    expect(await server.kill()).toEqual({ code: null, signal: "SIGKILL" });
    expect(server.running).toBe(false);
    await expect(greeting(server.port)).rejects.toThrow();
    await server.restart();
    expect(server.pid).not.toBe(first);
    expect(await greeting(server.port)).toContain("INFO");
    expect(server.logs().match(/Server is ready/g)).toHaveLength(2);
    expect(await server.stop()).toMatchObject({ signal: null });
    await server.restart();
    expect(await greeting(server.port)).toContain("INFO");
  });

  it("[KIT3] when paused accepts connections and says nothing, until resumed", async () => {
    const server = await nats();
    await server.pause();
    await expect(greeting(server.port)).rejects.toThrow("no greeting");
    server.resume();
    expect(await greeting(server.port)).toContain("INFO");
  });

  it("[KIT3] ends by stop and by kill even while paused", async () => {
    const server = await nats();
    await server.pause();
    expect(await server.stop()).toMatchObject({ signal: null });
    await server.restart();
    await server.pause();
    expect(await server.kill()).toMatchObject({ signal: "SIGKILL" });
  });

  it("[KIT4] removes its folder when disposed", async () => {
    const server = await startNats();
    expect(existsSync(server.dir)).toBe(true);
    await server.dispose();
    expect(existsSync(server.dir)).toBe(false);
    expect(server.running).toBe(false);
  });

  it("[KIT5] that cannot start rejects with its output", async () => {
    await expect(startNats({ config: "no_such_option: 1" })).rejects.toThrow(
      /unknown field "no_such_option"/,
    );
  });
});

describe("a cluster", () => {
  it("[KIT6] has one leader, and elects another when that is killed", async () => {
    const cluster = await startNatsCluster(3);
    disposals.push(cluster.dispose);
    const leader = async (): Promise<NatsServer | undefined> => {
      for (const node of cluster.nodes) {
        if (!node.running) continue;
        const jsz = (await node.monitor("/jsz")) as { meta_cluster: { leader?: string } };
        const found = cluster.nodes.find((each) => each.name === jsz.meta_cluster.leader);
        if (found?.running) return found;
      }
      return undefined;
    };
    for (const node of cluster.nodes)
      expect(await greeting(node.port)).not.toContain("connect_urls");
    const first = await eventually(leader);
    await first.kill();
    const second = await eventually(leader, { timeoutMs: 20_000 });
    expect(second.name).not.toBe(first.name);
    await first.restart();
    await cluster.settled();
  });
});

describe("redis", () => {
  it("[KIT1] answers PING, and again after a kill and a restart", async () => {
    const redis = await startRedis();
    disposals.push(redis.dispose);
    await redis.kill();
    await redis.restart();
    expect(redis.running).toBe(true);
    expect(redis.url).toBe(`redis://127.0.0.1:${redis.port}`);
  });
});
