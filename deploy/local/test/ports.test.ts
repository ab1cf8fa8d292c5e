import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { freePortFrom, holderOf, isFree, taken } from "../ports.mjs";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function listen(host: string): Promise<number> {
  const server = createServer().listen(0, host);
  servers.push(server);
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

describe("ports", () => {
  it.each(["127.0.0.1", "0.0.0.0", "::"])(
    "[PORT1] one that somebody listens on at %s is not free",
    async (host) => {
      const port = await listen(host);
      expect(await isFree(port)).toBe(false);
      servers.pop()?.close();
      expect(await isFree(port)).toBe(true);
    },
  );

  it("[PORT2] a taken one is named with what it is for and who holds it", async () => {
    const port = await listen("127.0.0.1");
    const free = await freePortFrom(port + 1);
    const lines = await taken([
      { port, what: "edge-1" },
      { port: free, what: "edge-2" },
    ]);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(
      new RegExp(`^port ${port} \\(edge-1\\) is taken by .*\\(pid ${process.pid}\\)$`),
    );
  });

  it("[PORT2] nobody holds a free one", async () => {
    const port = await listen("127.0.0.1");
    servers.pop()?.close();
    expect(await holderOf(port)).toBeUndefined();
  });
});
