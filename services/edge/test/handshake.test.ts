import { describe, expect, test } from "vitest";
import { readHandshake } from "../src/transport/handshake.ts";

const read = (headers: Record<string, string>, query = ""): ReturnType<typeof readHandshake> =>
  readHandshake({
    headers: new Map(
      Object.entries({
        upgrade: "websocket",
        connection: "Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        ...headers,
      }),
    ),
    query: new URLSearchParams(query),
    remoteAddress: "127.0.0.1",
  });
const offer = (list: string): ReturnType<typeof readHandshake> =>
  read({ "sec-websocket-protocol": list });

describe("the connect request", () => {
  test("[CON2] ours is selected, whatever else is offered; the token entry is taken, not echoed", () => {
    expect(offer("throughline.v1")).toMatchObject({
      ok: true,
      protocol: "throughline.v1",
      token: undefined,
    });
    expect(offer("x, bearer.dev.a.b,throughline.v1")).toMatchObject({
      ok: true,
      protocol: "throughline.v1",
      token: "dev.a.b",
    });
  });

  test("[CON2] a client that offers others only is refused by name; one that offers none is taken", () => {
    for (const list of ["graphql-ws", "bearer.dev.a.b", "Throughline.v1", "throughline.v2"]) {
      expect(offer(list)).toMatchObject({
        ok: false,
        refusal: { status: 400, body: expect.stringContaining("throughline.v1") as string },
      });
    }
    expect(read({})).toMatchObject({ ok: true, protocol: "" });
  });

  test("[CON2] the Authorization header counts first, and only as Bearer", () => {
    const headers = { "sec-websocket-protocol": "throughline.v1, bearer.two" };
    expect(read({ ...headers, authorization: "Bearer one" })).toMatchObject({ token: "one" });
    expect(read({ ...headers, authorization: "Basic one" })).toMatchObject({ token: "two" });
    expect(read({ authorization: "Bearer one, Bearer two" })).toMatchObject({ token: undefined });
  });

  test("[CON8] the query may name what to subscribe to", () => {
    expect(read({}, "session=s1&run=r1&cursor=3-4-x")).toMatchObject({
      subscribe: { session: "s1", run: "r1", cursor: "3-4-x", from: "start", commandId: undefined },
    });
    expect(read({}, "session=s1")).toMatchObject({ subscribe: { session: "s1", run: undefined } });
    expect(read({}, "")).toMatchObject({ subscribe: undefined, fault: undefined });
  });

  test.each([
    "session=a.b",
    "session=",
    "session=s&run=*",
    "session=s&run=a%20b",
    "session=%00",
    "run=r",
  ])("[CON8] %s is told to the client once it is connected", (query) => {
    expect(read({}, query)).toMatchObject({
      ok: true,
      subscribe: undefined,
      fault: expect.any(String) as string,
    });
  });
});
