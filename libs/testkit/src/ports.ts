import { randomInt } from "node:crypto";
import { createServer } from "node:net";

// Below the kernel's range for outgoing connections (32768 on Linux, 49152 on macOS): a server that
// is down for a while must find its port free again, and any client's connect could have taken it.
const LOWEST = 12_000;
const HIGHEST = 32_000;

const given = new Set<number>();

/** A loopback TCP port that nobody listens on and that this process has not been given before. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = randomInt(LOWEST, HIGHEST);
    if (given.has(port) || !(await canListen(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error(`no free port found between ${LOWEST} and ${HIGHEST}`);
}

export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) ports.push(await freePort());
  return ports;
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () =>
      server.close(() => resolve(true)),
    );
  });
}
