import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, tcpProxy, type TcpProxy } from "@throughline/testkit";

/** Answers every byte with itself, and an end with an end. */
let echo: Server;
let proxy: TcpProxy;
const clients: Socket[] = [];
const peers = new Set<Socket>();

beforeEach(async () => {
  echo = createServer({ allowHalfOpen: true }, (socket) => {
    peers.add(socket);
    socket.on("close", () => peers.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  });
  echo.listen(0, "127.0.0.1");
  await once(echo, "listening");
  proxy = await tcpProxy({ port: (echo.address() as AddressInfo).port });
});

afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  proxy.close();
  echo.close();
});

interface Client {
  socket: Socket;
  received: () => string;
  closed: () => string | undefined;
}

async function open(): Promise<Client> {
  const socket = connect(proxy.port, "127.0.0.1");
  clients.push(socket);
  const chunks: Buffer[] = [];
  let closed: string | undefined;
  socket.on("data", (chunk) => chunks.push(chunk));
  socket.on("error", (error: NodeJS.ErrnoException) => (closed = error.code ?? error.message));
  socket.on("close", () => (closed ??= "closed"));
  await once(socket, "connect");
  return { socket, received: () => Buffer.concat(chunks).toString(), closed: () => closed };
}

/** A loop the same way round, past the proxy, again and again: what was to come is here by then. */
async function passTime(): Promise<void> {
  const witness = connect((echo.address() as AddressInfo).port, "127.0.0.1");
  for (let round = 0; round < 50; round++) {
    witness.write("w");
    await once(witness, "data");
  }
  witness.destroy();
}

describe("the fault proxy", () => {
  it("[NET1] forwards both ways, whole and in order, and passes an end on after the bytes before it", async () => {
    const { socket, received, closed } = await open();
    const text = Array.from({ length: 50_000 }, (_, i) => `${i} `).join("");
    proxy.latency(5);
    socket.end(text);
    await eventually(() => closed() === "closed");
    expect(received()).toBe(text);
    expect(proxy.bytes).toEqual({ up: text.length, down: text.length });
    await eventually(() => proxy.open === 0);
  });

  it("[NET2] delays each direction by its latency", async () => {
    const { socket, received } = await open();
    proxy.latency(120, "up");
    proxy.latency(80, "down");
    const start = performance.now();
    socket.write("hello");
    await eventually(() => received() === "hello");
    expect(performance.now() - start).toBeGreaterThanOrEqual(199);
  });

  it("[NET3] stalled, forwards nothing and closes nothing, also when the peer is gone; flowing again, it tells", async () => {
    const before = await open();
    before.socket.write("a");
    await eventually(() => before.received() === "a");
    proxy.stall();
    before.socket.write("b");
    const after = await open();
    after.socket.write("c");
    await eventually(() => peers.size === 2);
    for (const peer of peers) peer.destroy();
    await passTime();
    expect([before.received(), after.received()]).toEqual(["a", ""]);
    expect([before.closed(), after.closed()]).toEqual([undefined, undefined]);
    proxy.flow();
    await eventually(() => before.closed() !== undefined && after.closed() !== undefined);
  });

  it("[NET3] stalled one way, a peer that breaks off is not told of until it flows again", async () => {
    const { socket, closed } = await open();
    await eventually(() => peers.size === 1);
    proxy.stall("down");
    for (const peer of peers) peer.resetAndDestroy();
    // The way up still flows, so the proxy writes into the broken connection and learns of it.
    await eventually(() => {
      socket.write("x");
      return proxy.broken === 1;
    });
    await passTime();
    expect(closed()).toBeUndefined();
    proxy.flow();
    await eventually(() => closed() === "ECONNRESET");
  });

  it("[NET3] flowing again, what was held back arrives", async () => {
    const { socket, received } = await open();
    proxy.stall("down");
    socket.write("a");
    await eventually(() => proxy.bytes.up === 1);
    socket.write("b");
    await eventually(() => proxy.bytes.up === 2);
    expect(received()).toBe("");
    proxy.flow();
    await eventually(() => received() === "ab");
  });

  it("[NET3] a stalled reader's sender is held back instead of filling our memory", async () => {
    const { socket } = await open();
    proxy.stall();
    const megabyte = Buffer.alloc(1 << 20);
    let written = 0;
    // Until the kernel takes no more.
    while (written < 64 && socket.writableLength < 4 << 20) {
      socket.write(megabyte);
      written++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(written).toBeLessThan(64);
    expect(proxy.bytes.up).toBe(0);
  });

  it("[NET4] cut resets open connections and takes new ones", async () => {
    const first = await open();
    await eventually(() => proxy.open === 1);
    proxy.cut();
    await eventually(() => first.closed() === "ECONNRESET");
    const second = await open();
    second.socket.write("x");
    await eventually(() => second.received() === "x");
    expect(proxy.accepted).toBe(2);
  });

  it("[NET5] refuses and accepts on the same port", async () => {
    const first = await open();
    await eventually(() => proxy.accepted === 1);
    proxy.refuse();
    await expect(open()).rejects.toThrow("ECONNREFUSED");
    first.socket.write("still");
    await eventually(() => first.received() === "still");
    await proxy.accept();
    await open();
  });

  it("[NET6] drips at the rate asked for", async () => {
    const { socket, received } = await open();
    proxy.drip(2000, "down");
    const start = performance.now();
    socket.write("x".repeat(600));
    await eventually(() => received().length === 600);
    const seconds = (performance.now() - start) / 1000;
    expect(600 / seconds).toBeLessThan(2400);
    expect(600 / seconds).toBeGreaterThan(1000);
    proxy.drip(Infinity);
    socket.write("y".repeat(100_000));
    await eventually(() => received().length === 100_600, { timeoutMs: 2000 });
  });

  it("[NET7] a tap sees, alters and drops chunks, and injects its own", async () => {
    const seen: string[] = [];
    proxy.tap(({ connection, inject }) => ({
      up: (chunk) => {
        seen.push(`${connection}:${chunk.toString()}`);
        if (chunk.toString() === "lose") return undefined;
        inject("down", Buffer.from("[injected]"));
        return Buffer.from(chunk.toString().toUpperCase());
      },
    }));
    const { socket, received } = await open();
    socket.write("lose");
    await eventually(() => seen.length === 1);
    socket.write("keep");
    await eventually(() => received() === "[injected]KEEP");
    expect(seen).toEqual(["1:lose", "1:keep"]);
  });

  it("[NET8] a target that is not there resets the client", async () => {
    echo.close();
    const { closed } = await open();
    await eventually(() => closed() === "ECONNRESET");
  });
});
