import { existsSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startHaproxy, startNginx } from "../src/index.ts";

const server = createServer((request, response) => response.end(`asked for ${request.url}`));
let target = "";

beforeAll(async () => {
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  target = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());

describe("load balancers", () => {
  it.each([
    [
      "nginx",
      () =>
        startNginx(
          (port) =>
            `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${target}; } }`,
        ),
    ],
    [
      "haproxy",
      () =>
        startHaproxy(
          (port) => `
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 1s
listen all
  bind 127.0.0.1:${port}
  server one ${target}
`,
        ),
    ],
  ])("[KIT14] %s forwards as it is told to, and nothing is left of it", async (_name, start) => {
    const balancer = await start();
    const { port, dir, url } = balancer;
    expect(await (await fetch(`${url}/here`)).text()).toBe("asked for /here");
    await balancer.dispose();
    expect(existsSync(dir)).toBe(false);
    await expect(fetch(`http://127.0.0.1:${port}`)).rejects.toThrow("fetch failed");
  });

  it("[KIT14] [KIT5] a configuration that is wrong is told with the server's own words", async () => {
    await expect(startNginx(() => "servers {}")).rejects.toThrow('unknown directive "servers"');
    await expect(startHaproxy(() => "frontend\n")).rejects.toThrow("frontend");
  });
});
