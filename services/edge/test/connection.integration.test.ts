import { eventually } from "@throughline/testkit";
import { connect as tcpConnect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { freshId, note, range, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
});
afterAll(() => stage.close());

/** Stored messages in all streams: what hostile input must leave unchanged. */
async function stored(): Promise<number> {
  const streams = ["TL_EV_0", "TL_EV_1", "TL_CM_0", "TL_CM_1"];
  const infos = await Promise.all(streams.map((name) => stage.broker.jsm.streams.info(name)));
  return infos.reduce((sum, info) => sum + info.state.messages, 0);
}

describe("a WebSocket connection", () => {
  test("[CON1] begins with welcome", async () => {
    const client = await stage.connected(edge);
    expect(client.frames).toEqual([
      {
        type: "welcome",
        protocol: 1,
        connection_id: expect.stringMatching(/^con_/) as string,
        node: "edge-1",
        heartbeat_interval_ms: 20_000,
        max_frame_bytes: 512 * 1024,
        server_time: expect.any(Number) as number,
      },
    ]);
  });

  test("[CON2] [AUTH3] the token entry is not echoed; a client of another protocol learns ours", async () => {
    const client = await stage.connected(edge, {
      token: null,
      protocols: ["bearer.dev.acme.ann", "throughline.v1"],
    });
    expect(client.ws.protocol).toBe("throughline.v1");
    const plain = await stage.connected(edge, { protocols: [] });
    expect(plain.ws.protocol).toBe("");
    const other = stage.client(edge, { protocols: ["graphql-ws"] });
    const refusal = await other.until(() => other.refusal, "a refusal");
    expect(refusal.status).toBe(400);
    expect(refusal.headers["content-type"]).toBe("application/problem+json");
    expect(JSON.parse(refusal.body)).toMatchObject({
      status: 400,
      code: "malformed",
      detail: expect.stringContaining("throughline.v1") as string,
    });
  });

  test("[HS3] [AUTH1] [AUTH3] without credentials 4401; from a web page of elsewhere 4403; the token is in neither", async () => {
    const nobody = stage.client(edge, { token: null });
    expect(await nobody.untilClosed()).toEqual({
      code: 4401,
      reason: "credentials are required",
    });
    const page = stage.client(edge, {
      token: "dev.acme.secret-user",
      headers: { origin: "https://evil.example" },
    });
    const closed = await page.untilClosed();
    expect(closed).toMatchObject({
      code: 4403,
      reason: expect.stringContaining("pages of this origin"),
    });
    expect(closed.reason + JSON.stringify(stage.logged)).not.toContain("secret-user");
    expect([...nobody.frames, ...page.frames]).toEqual([]);
    expect(edge.measured.connection.closed).toEqual(
      new Map([
        [4401, 1],
        [4403, 1],
      ]),
    );
  });

  test("[HS3] [LIFE4] without our subprotocol: 401 and 403; and who is turned away needs a place like everybody", async () => {
    const bare = stage.client(edge, { token: null, protocols: [] });
    expect((await bare.until(() => bare.refusal, "a refusal")).status).toBe(401);
    const small = await stage.edge({ maxConnections: 1 });
    const one = await stage.connected(small);
    const two = stage.client(small, { token: null });
    expect((await two.until(() => two.refusal, "a refusal")).status).toBe(503);
    one.close();
    await eventually(() => small.measured.connections.taken === 0);
    // A thousand of them, and none keeps its place.
    for (let batch = 0; batch < 10; batch += 1) {
      const turnedAway = range(1, 100).map(() => stage.client(small, { token: "nonsense" }));
      await Promise.all(
        turnedAway.map((client) => client.until(() => client.closed ?? client.refusal, "an end")),
      );
    }
    expect(small.measured.connections.taken).toBe(0);
    await stage.connected(small);
  });

  // Every field of every command, over every door: hostile.integration.test.ts.
  test.each([
    ["no id", '{"type":"heartbeat"}', "malformed"],
    ["an unknown type", '{"type":"run.destroy","id":"x"}', "unknown_type"],
    [
      "a wrong payload",
      '{"type":"subscribe","id":"x","session_id":"s","payload":{"from":"never"}}',
      "invalid",
    ],
  ])(
    "[CON3] [C28] %s gets a clear error, nothing reaches NATS, and the connection goes on",
    async (_what, text, code) => {
      const before = await stored();
      const client = await stage.connected(edge);
      client.ws.send(text);
      const error = await client.frame("error");
      expect(error.code).toBe(code);
      expect(error.message).not.toBe("");
      client.send({ type: "heartbeat", id: "after", payload: { ts: 5 } });
      expect(await client.frame("heartbeat.ack")).toEqual({
        type: "heartbeat.ack",
        id: "after",
        ts: 5,
      });
      expect(await stored()).toBe(before);
    },
  );

  test("[CON3] [C28] a cursor that is none: invalid", async () => {
    const session = await stage.session(edge);
    const client = await stage.connected(edge);
    for (const cursor of [
      "",
      "1",
      "1-2",
      "a-b-c",
      "1-2-t-x",
      "-1-2-t",
      "1-99999999999999999999-t",
      "1-2-T",
    ]) {
      expect(await client.subscribe({ session }, { cursor })).toMatchObject({
        type: "error",
        code: "invalid",
      });
    }
  });

  test("[CON3] [C28] binary frames are refused; repeated, the connection is closed with 4400", async () => {
    const client = await stage.connected(edge);
    client.ws.send(Buffer.from([1, 2, 3]));
    expect(await client.frame("error")).toMatchObject({ code: "malformed" });
    for (let i = 0; i < 8; i += 1) client.ws.send("{");
    expect(await client.untilClosed()).toMatchObject({ code: 4400 });
  });

  test("[CON3] [C28] a command behind many invalid ones gets its answer", async () => {
    const client = await stage.connected(edge);
    const wrong = range(1, 30).map(() => freshId());
    for (const id of wrong) {
      client.send({ type: "subscribe", id, session_id: "s", payload: { from: "never" } });
    }
    expect(await client.ask({ type: "session.create", payload: {} })).toMatchObject({
      type: "session.created",
    });
    const errors = client.frames.filter(({ type }) => type === "error");
    expect(errors.map(({ id, code }) => [id, code])).toEqual(wrong.map((id) => [id, "invalid"]));
  });

  test("[CON4] [C28] a frame over the limit closes with 1009 and a close frame; far over it, the node lives", async () => {
    const client = await stage.connected(edge);
    client.ws.send("x".repeat(513 * 1024));
    expect(await client.untilClosed()).toMatchObject({ code: 1009 });
    const huge = await stage.connected(edge);
    huge.ws.send("x".repeat(10 * 1024 * 1024));
    expect((await huge.untilClosed()).code).toBe(1006);
    await stage.connected(edge);
  });

  test("[CON8] the connect URL subscribes; what is wrong in it is told", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const client = stage.client(edge, { query: `session=${session}&run=${ref.run}` });
    await client.frame("caught_up");
    expect(client.frames.map((f) => f.type)).toEqual([
      "welcome",
      "subscribed",
      "run.queued",
      "caught_up",
    ]);
    expect(client.frames[1]?.id).toBeUndefined();
    const wrong = stage.client(edge, { query: "session=a.b" });
    expect(await wrong.frame("error")).toMatchObject({ code: "invalid" });
    expect(wrong.frames[0]?.type).toBe("welcome");
  });

  test("[CON7] commands of one connection are carried out in order", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const client = await stage.connected(edge);
    const sent = range(1, 40).map((n) => ({ id: freshId(), n }));
    for (const { id, n } of sent) {
      client.send({
        type: "run.continue",
        id,
        session_id: session,
        run_id: ref.run,
        payload: { content: n },
      });
    }
    await client.frame("command.accepted", 40);
    const got: unknown[] = [];
    const tail = stage.broker.commands.tail(ref, 0, {
      command: (c) => void got.push(Reflect.get(c.command as object, "id")),
      fault: () => undefined,
    });
    await eventually(() => got.length === 40);
    tail.close();
    expect(got).toEqual(sent.map(({ id }) => id));
  });

  test("[CON9] [C10] a thousand handshakes given up in the middle leave nothing behind", async () => {
    const before = edge.measured.connections.taken;
    const head = [
      "GET /v1/connect HTTP/1.1",
      `Host: 127.0.0.1:${edge.port}`,
      "Upgrade: websocket",
      "Connection: Upgrade",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      "Authorization: Bearer dev.acme.ann",
      "",
      "",
    ].join("\r\n");
    for (let batch = 0; batch < 10; batch += 1) {
      await Promise.all(
        range(1, 100).map(
          (i) =>
            new Promise<void>((resolve) => {
              const socket = tcpConnect(edge.port, "127.0.0.1", () => {
                // Some of them before the head is whole, some right behind it.
                socket.write(head.slice(0, i % 3 === 0 ? 40 : head.length), () => socket.destroy());
              });
              socket.on("error", () => undefined);
              socket.on("close", () => resolve());
            }),
        ),
      );
    }
    await stage.connected(edge);
    await eventually(() => edge.measured.connections.taken <= before + 1);
  });

  test("[CON6] heartbeats when quiet, 4408 when silent", async () => {
    const quick = await stage.edge({ limits: { connection: { quietMs: 0, silentMs: 1_500 } } });
    const client = await stage.connected(quick);
    await client.frame("heartbeat");
    // The library answers pings by itself, and the edge sends none yet: this client is silent.
    expect(await client.untilClosed()).toMatchObject({ code: 4408 });
    const talker = await stage.connected(quick);
    const talk = setInterval(() => talker.ws.ping(), 200);
    const pongs = setInterval(() => talker.ws.pong(), 200);
    await talker.frame("heartbeat", 2);
    clearInterval(talk);
    clearInterval(pongs);
    expect(talker.closed).toBeUndefined();
  });

  test("[LIFE4] beyond the cap on connections: 503 with Retry-After, and room again after a close", async () => {
    const small = await stage.edge({ maxConnections: 2 });
    const first = await stage.connected(small);
    await stage.connected(small);
    const third = stage.client(small);
    const refusal = await third.until(() => third.refusal, "a refusal");
    expect(refusal.status).toBe(503);
    expect(refusal.headers["retry-after"]).toBe("5");
    first.close();
    await eventually(() => small.measured.connections.taken === 1);
    await stage.connected(small);
  });
});

test("[CON1] nothing was logged as an error", () => {
  expect(stage.logged.filter((entry) => "err" in entry)).toEqual([]);
  expect(note(1).type).toBe("custom");
});
