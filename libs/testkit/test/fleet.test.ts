import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocketServer } from "ws";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, type Fleet, startFleet } from "../src/index.ts";

/** An edge of sorts: whoever comes gets what the test says, and `caught_up`. */
const streams: { response: ServerResponse; cursor: string | undefined; at: number }[] = [];
const http = createServer((request, response) => {
  const cursor = request.headers["last-event-id"];
  response.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n");
  streams.push({
    response,
    cursor: typeof cursor === "string" ? cursor : undefined,
    at: Date.now(),
  });
});
const sockets = new WebSocketServer({ server: http });
let fleet: Fleet;
let url = "";

beforeAll(async () => {
  await new Promise<void>((resolve) => void http.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
});
afterAll(() => {
  fleet.dispose();
  sockets.close();
  http.closeAllConnections();
  http.close();
});

const watch = { token: "dev.acme.ann", session: "s", run: "r", count: 1 };

function tell(stream: ServerResponse | undefined, frame: object, id?: string): void {
  stream?.write(`${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(frame)}\n\n`);
}

describe("a fleet", () => {
  it("[KIT16] [KIT15] counts what is left out and what comes twice, and how it came back", async () => {
    fleet = startFleet(1);
    const watching = fleet.watch({ ...watch, urls: [url], transport: "stream" });
    const first = (await eventually(() => streams[0])).response;
    tell(first, { type: "custom", seq: 1 }, "1-1-a");
    tell(first, { type: "caught_up" });
    await watching;
    tell(first, { type: "custom", seq: 2 }, "2-2-a");
    tell(first, { type: "custom", seq: 2 }, "2-2-a");
    tell(first, { type: "custom", seq: 5 }, "5-5-a");
    tell(first, { type: "goaway", reconnect_after_ms: 300, reason: "drain" });
    first.end();
    const ended = Date.now();
    const second = await eventually(() => streams[1]);
    expect(second.cursor).toBe("5-5-a");
    expect(second.at - ended).toBeGreaterThanOrEqual(295);
    tell(second.response, { type: "custom", seq: 6 }, "6-6-a");
    tell(second.response, { type: "caught_up" });
    expect(await fleet.reached(6, 5_000)).toBe(0);
    expect(await fleet.reached(7, 50)).toBe(1);
    const [report] = await fleet.reports();
    expect(report).toMatchObject({ last: 6, holes: 2, repeats: 1, isLevel: true });
    expect(report?.returns).toMatchObject([{ code: 0, told: { afterMs: 300 }, failed: 0 }]);
  });

  it("[KIT16] follows by the client SDK, and sees what the SDK would make good in silence", async () => {
    const opened: number[] = [];
    sockets.on("connection", (socket) => {
      opened.push(Date.now());
      const say = (frame: object): void => socket.send(JSON.stringify(frame));
      say({
        type: "welcome",
        protocol: 1,
        connection_id: "c",
        node: "n",
        heartbeat_interval_ms: 20_000,
        max_frame_bytes: 1_000,
        server_time: 1,
      });
      socket.on("message", (data: Buffer) => {
        const { id, type }: { id: string; type: string } = JSON.parse(data.toString("utf8"));
        if (type !== "subscribe") return;
        const about = { subscription_id: "sub_1", session_id: "s", run_id: "r" };
        const cursor = "0-1-a";
        say({ ...about, type: "subscribed", id, recovered: true, mode: "replay", cursor });
        say({ type: "caught_up", subscription_id: "sub_1", cursor });
        // The first connection is cut.
        if (opened.length === 1) setTimeout(() => socket.terminate(), 50);
      });
    });
    await fleet.watch({ ...watch, urls: [url], transport: "socket" });
    await eventually(() => opened.length === 2);
    const returned = await eventually(async () =>
      (await fleet.reports()).find(
        ({ transport, returns }) => transport === "socket" && returns[0],
      ),
    );
    expect(returned.returns[0]).toMatchObject({ code: 1006, told: undefined });
  });
});
