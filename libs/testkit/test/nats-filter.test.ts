import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  eventually,
  natsFilter,
  type NatsServer,
  startNats,
  tcpProxy,
  type TcpProxy,
} from "@throughline/testkit";

let nats: NatsServer;
let proxy: TcpProxy;

beforeAll(async () => {
  nats = await startNats();
  proxy = await tcpProxy({ port: nats.port });
});
afterAll(async () => {
  proxy.close();
  await nats.dispose();
});

/** A bare NATS client: what it sends and gets are protocol lines. */
async function client(port: number): Promise<{ socket: Socket; received: () => string }> {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.on("data", (chunk) => (text += chunk.toString()));
  await once(socket, "connect");
  socket.write('CONNECT {"headers":true,"verbose":false}\r\nPING\r\n');
  await eventually(() => text.includes("PONG"));
  return { socket, received: () => text };
}

const payloadsOf = (received: string): string[] => received.match(/payload-\d+/g) ?? [];

describe("the NATS filter", () => {
  it("[NET9] drops just the messages asked for, with and without headers, however the bytes are cut", async () => {
    const filter = natsFilter(({ subject, payload, headers }) =>
      subject === "a.b" && (payload.toString() === "payload-2" || headers.includes("X: drop"))
        ? "drop"
        : "pass",
    );
    // One byte a chunk at the filter's door: every message arrives cut everywhere.
    proxy.tap((context) => {
      const inner = filter.tap(context);
      return {
        down: (chunk) =>
          Buffer.concat(
            [...chunk].map((byte) => inner.down?.(Buffer.from([byte])) ?? Buffer.alloc(0)),
          ),
      };
    });
    const { socket, received } = await client(proxy.port);
    socket.write("SUB a.> 1\r\nPING\r\n");
    socket.write("PUB a.b 9\r\npayload-1\r\nPUB a.b reply.to 9\r\npayload-2\r\n");
    socket.write("HPUB a.b 21 30\r\nNATS/1.0\r\nX: drop\r\n\r\npayload-3\r\n");
    socket.write("HPUB a.b 21 30\r\nNATS/1.0\r\nX: keep\r\n\r\npayload-4\r\n");
    socket.write("PUB a.c 9\r\npayload-2\r\nPUB a.b 9\r\npayload-5\r\n");
    await eventually(() => received().includes("payload-5"));
    expect(payloadsOf(received())).toEqual(["payload-1", "payload-4", "payload-2", "payload-5"]);
    expect(filter.dropped).toBe(2);
    socket.destroy();
  });

  it("[NET9] holds messages back and releases them in another order", async () => {
    const filter = natsFilter(({ payload }) =>
      /payload-[12]/.test(payload.toString()) ? "hold" : "pass",
    );
    proxy.tap(filter.tap);
    const { socket, received } = await client(proxy.port);
    socket.write(
      "SUB h 1\r\nPUB h 9\r\npayload-1\r\nPUB h 9\r\npayload-2\r\nPUB h 9\r\npayload-3\r\n",
    );
    await eventually(() => received().includes("payload-3"));
    expect(filter.held).toBe(2);
    filter.release((held) => held.toReversed());
    await eventually(() => payloadsOf(received()).length === 3);
    expect(payloadsOf(received())).toEqual(["payload-3", "payload-2", "payload-1"]);
    expect(filter.held).toBe(0);
    socket.destroy();
  });
});
