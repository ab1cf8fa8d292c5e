import { randomInt } from "node:crypto";
import { createServer } from "node:net";

// Below the kernel's range for outgoing connections (32768 on Linux, 49152 on macOS): a server that
// is down for a while must find its port free again, and any client's connect could have taken it.
const LOWEST = 12_000;
const HIGHEST = 32_000;

// Test files run side by side. Each of their processes has a slice of its own, or one could be given the
// port of a server that another has just killed and is about to start again.
const SLICES = 8;
const SLICE = (HIGHEST - LOWEST) / SLICES;
const FIRST = LOWEST + (Number(process.env["VITEST_POOL_ID"] ?? 0) % SLICES) * SLICE;

const given = new Set<number>();

/** A loopback TCP port that nobody listens on and that this process has not been given before. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = randomInt(FIRST, FIRST + SLICE);
    if (given.has(port) || !(await canListen(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error(`no free port found between ${FIRST} and ${FIRST + SLICE}`);
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
