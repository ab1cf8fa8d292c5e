/** The connection on real sockets. */
import { eventually, manualClock } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { createClient } from "../src/index.ts";
import { createClient as createNodeClient } from "../src/node.ts";
import { stage } from "./stage.ts";

describe("credentials", () => {
  test("[CLI10] a plain WebSocket carries the token as a subprotocol entry, and the URL carries none", async () => {
    const { edge, client } = await stage();
    await client().createSession();
    const [request] = edge.requests;
    expect(request?.headers["sec-websocket-protocol"]).toBe("throughline.v1,bearer.dev.acme.ann");
    expect(request?.headers.authorization).toBeUndefined();
    expect(request?.url).toBe("/v1/connect");
  });

  test("[CLI10] the entry for Node sends a header instead", async () => {
    const { edge } = await stage();
    const client = createNodeClient({ url: edge.url, token: "dev.acme.ann" });
    await client.createSession();
    client.close();
    const [request] = edge.requests;
    expect(request?.headers["sec-websocket-protocol"]).toBe("throughline.v1");
    expect(request?.headers.authorization).toBe("Bearer dev.acme.ann");
  });

  test("[CLI10] URLs with credentials, of other schemes and none at all are refused", () => {
    const make = (url?: string) => () =>
      createClient({ ...(url === undefined ? {} : { url }), token: "t", webSocket: WebSocket });
    expect(make("wss://edge.example/v1/connect?token=abc")).toThrow("give them as token");
    expect(make("https://ann:secret@edge.example")).toThrow("give them as token");
    expect(make("ftp://edge.example")).toThrow("no scheme of an edge");
    expect(make()).toThrow("needs a url");
  });

  test("[CLI11] the token is asked for before each attempt, and a failure of its source is one of the attempt", async () => {
    const { edge, client } = await stage();
    const given: string[] = [];
    const follower = client({
      token: () => {
        given.push(`t${given.length}`);
        return given.length === 2
          ? Promise.reject(new Error("no"))
          : Promise.resolve(`t${given.length}`);
      },
    });
    await follower.createSession();
    edge.cut();
    await follower.createSession();
    expect(edge.requests.map((r) => r.headers["sec-websocket-protocol"])).toEqual([
      "throughline.v1,bearer.t1",
      "throughline.v1,bearer.t3",
    ]);
  });

  test("[CLI11] a token that fits no subprotocol ends the client with the reason", async () => {
    const { edge, client } = await stage();
    const sent = client({ token: "a token, with blanks" }).createSession();
    await expect(sent).rejects.toMatchObject({
      name: "ClientClosed",
      closed: { kind: "unusable" },
    });
    expect(edge.requests).toEqual([]);
  });

  test("[CLI12] without a WebSocket the error names the two ways out", () => {
    const found = Object.getOwnPropertyDescriptor(globalThis, "WebSocket");
    Object.defineProperty(globalThis, "WebSocket", { value: undefined, configurable: true });
    try {
      const make = () => createClient({ url: "ws://127.0.0.1:1", token: "t" });
      expect(make).toThrow("@throughline/client/node");
      expect(make).toThrow("webSocket");
    } finally {
      if (found === undefined) Reflect.deleteProperty(globalThis, "WebSocket");
      else Object.defineProperty(globalThis, "WebSocket", found);
    }
  });

  test("[CLI4] a handshake refused with 401 is taken for 4401 where the socket tells the status", async () => {
    const { edge, client } = await stage();
    edge.faults.refuse = () => 401;
    await expect(client().createSession()).rejects.toMatchObject({
      name: "ClientClosed",
      closed: { kind: "refused", code: 4401 },
    });
    expect(edge.requests.length).toBe(1);
  });

  test("[CLI4] a handshake refused with 503 is tried again", async () => {
    const { edge, client } = await stage();
    let left = 3;
    edge.faults.refuse = () => (left-- > 0 ? 503 : undefined);
    await client().createSession();
    expect(edge.requests.length).toBe(4);
  });
});

describe("loss", () => {
  test("[CLI5] a node that is gone is passed over for the next", async () => {
    const { edges, client } = await stage(3);
    const [first, second, third] = edges;
    await first?.kill();
    await second?.kill();
    await client().createSession();
    expect(third?.sent("session.create").length).toBe(1);
  });

  test("[CLI4] 4403 ends the client: handles and commands say so, and nobody comes back", async () => {
    const { edge, client } = await stage();
    edge.faults.closeAtOnce = () => 4403;
    const follower = client();
    const handle = follower.follow({ session: "ses_1", run: "run_1" });
    const cause = { name: "ClientClosed", closed: { kind: "refused", code: 4403 } };
    await expect(follower.createSession()).rejects.toMatchObject(cause);
    await expect(handle.done).rejects.toMatchObject(cause);
    expect(await handle.closed).toMatchObject({ reason: "failed", error: cause });
    await expect(handle[Symbol.asyncIterator]().next()).rejects.toMatchObject(cause);
    expect(() => follower.follow({ session: "ses_1" })).toThrow("4403");
    await expect(follower.createSession()).rejects.toMatchObject(cause);
    expect(edge.requests.length).toBe(1);
  });

  test("[CLI6] goaway: the client leaves by itself for the next node when the delay is over", async () => {
    const { edges, client } = await stage(2);
    const [first, second] = edges;
    const follower = client();
    await follower.createSession();
    for (const connection of first?.connections ?? [])
      connection.send({ type: "goaway", reconnect_after_ms: 20, reason: "drain" });
    await eventually(() => second?.connections.size === 1 && first?.connections.size === 0);
  });
});

describe("silence", () => {
  test("[CLI7] a server that no longer answers is left after two missed heartbeats", async () => {
    const clock = manualClock();
    const { edge, client } = await stage(1, { heartbeatMs: 20_000 });
    const follower = client({ clock });
    const created = follower.createSession();
    await eventually(() => edge.connections.size === 1);
    await created;
    edge.faults.command = () => true;
    const [before] = edge.connections;
    clock.advance(40_000);
    expect(follower.connection.getSnapshot()).toMatchObject({ name: "open", missed: 1 });
    clock.advance(20_000);
    expect(follower.connection.getSnapshot()).toMatchObject({
      name: "waiting",
      after: { kind: "silence" },
    });
    clock.advance(1_000);
    await eventually(() => edge.connections.size === 1 && ![...edge.connections].includes(before!));
  });

  test("[CLI7] answered heartbeats keep the connection, however long", async () => {
    const clock = manualClock();
    const { edge, client } = await stage(1, { heartbeatMs: 20_000 });
    const follower = client({ clock });
    await follower.createSession();
    for (let beat = 1; beat <= 5; beat++) {
      let answered = false;
      edge.faults.command = () => {
        answered = true;
        return false;
      };
      await clock.advanceAsync(20_000);
      await eventually(() => answered);
      // The answer is on its way back; a command's answer behind it shows that it is there.
      await follower.createSession();
    }
    expect(edge.requests.length).toBe(1);
    expect(follower.connection.getSnapshot()).toMatchObject({ name: "open", missed: 0 });
  });

  test("[CLI8] a node that accepts and never says welcome is left for the next", async () => {
    const clock = manualClock();
    const { edges, client } = await stage(2);
    const [first, second] = edges;
    if (first !== undefined) first.faults.silent = () => true;
    const created = client({ clock }).createSession();
    await eventually(() => first?.connections.size === 1);
    clock.advance(10_000);
    await eventually(() => {
      clock.advance(100);
      return second?.connections.size === 1;
    });
    await created;
  });

  test("[CLI9] a command that is swallowed is asked again on a new connection, with the same id", async () => {
    const clock = manualClock();
    const { edge, client } = await stage();
    let swallowed = 0;
    edge.faults.command = (command) => command.type === "session.create" && swallowed++ === 0;
    const created = client({ clock }).createSession({ title: "t" }, { id: "once" });
    await eventually(() => edge.sent("session.create").length === 1);
    await eventually(async () => {
      await clock.advanceAsync(5_000);
      return edge.sent("session.create").length === 2;
    });
    expect(await created).toBe("ses_once");
    expect(edge.requests.length).toBe(2);
  });
});
