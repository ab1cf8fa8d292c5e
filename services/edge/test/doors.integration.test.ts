/** What browsers ask of an edge before and beside the requests of its API: CORS, HEAD, OPTIONS, stream tickets. */
import { EventStreamClient, eventually } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { Api } from "./api.ts";
import { completed, note, Stage } from "./stage.ts";

const APP = "https://app.example";
const EVIL = "https://evil.example";
const LOCAL = "http://localhost:3000";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge({ allowedOrigins: [APP] });
  other = await stage.edge();
});
afterAll(() => stage.close());

const ann = (node: Edge = edge): Api => new Api(node);

function ask(path: string, init: RequestInit = {}, node: Edge = edge): Promise<Response> {
  return fetch(`http://127.0.0.1:${node.port}${path}`, init);
}

const preflight = (origin: string, method = "POST"): RequestInit => ({
  method: "OPTIONS",
  headers: {
    origin,
    "access-control-request-method": method,
    "access-control-request-headers": "authorization,content-type,idempotency-key",
  },
});

describe("[CORS1] a page of an allowed origin", () => {
  test.each([
    ["/v1/sessions", "POST, GET, HEAD, OPTIONS"],
    ["/v1/sessions/s/runs/r/commands", "POST, OPTIONS"],
    ["/v1/sessions/s/runs/r/events", "GET, HEAD, OPTIONS"],
    ["/v1/tickets", "POST, OPTIONS"],
  ])("is told before it asks for %s what it may send", async (path, methods) => {
    for (const origin of [APP, LOCAL]) {
      const answer = await ask(path, preflight(origin));
      expect(answer.status).toBe(204);
      expect(Object.fromEntries(answer.headers)).toMatchObject({
        "access-control-allow-origin": origin,
        "access-control-allow-methods": methods,
        "access-control-max-age": "600",
        vary: "Origin",
      });
      const allowed = answer.headers.get("access-control-allow-headers")?.toLowerCase().split(", ");
      for (const name of [
        "authorization",
        "content-type",
        "idempotency-key",
        "last-event-id",
        "range",
      ]) {
        expect(allowed).toContain(name);
      }
      // No cookies, and no length of a body that is not there.
      expect(answer.headers.has("access-control-allow-credentials")).toBe(false);
      expect(answer.headers.has("content-length")).toBe(false);
    }
  });

  test("may read every answer, refusals and streams too, and the headers that it needs", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    await writer.append(completed);
    const path = `/v1/sessions/${session}/runs/${ref.run}/events`;
    const authorization = "Bearer dev.acme.ann";
    for (const [status, where, headers] of [
      [200, path, { authorization }],
      [200, path, { authorization, accept: "text/event-stream" }],
      [401, path, {}],
      [404, "/nowhere", {}],
      [404, `/v1/sessions/${session}/runs/none`, { authorization }],
      [405, "/v1/tickets", { authorization }],
      [422, `${path}?cursor=x`, { authorization, accept: "text/event-stream" }],
      [426, "/v1/connect", { authorization }],
    ] as const) {
      const answer = await ask(where, { headers: { ...headers, origin: LOCAL } });
      await answer.text();
      expect([where, answer.status]).toEqual([where, status]);
      expect(answer.headers.get("access-control-allow-origin")).toBe(LOCAL);
      expect(answer.headers.get("access-control-expose-headers")).toContain("Retry-After");
      expect(answer.headers.get("vary")).toBe("Origin");
    }
  });
});

describe("[CORS2] a page of another origin", () => {
  test("is refused, in words that it cannot read", async () => {
    for (const init of [
      preflight(EVIL),
      { headers: { origin: EVIL, authorization: "Bearer dev.acme.ann" } },
      { headers: { origin: "null", authorization: "Bearer dev.acme.ann" } },
      {
        method: "POST",
        headers: { origin: EVIL, authorization: "Bearer dev.acme.ann" },
        body: "{}",
      },
    ]) {
      const answer = await ask("/v1/sessions", init);
      expect([answer.status, await answer.json()]).toMatchObject([403, { code: "forbidden" }]);
      expect(answer.headers.has("access-control-allow-origin")).toBe(false);
      expect(answer.headers.get("vary")).toBe("Origin");
    }
  });

  test("opens no WebSocket", async () => {
    const client = stage.client(edge, { headers: { origin: EVIL } });
    expect(await client.untilClosed()).toMatchObject({ code: 4403 });
  });

  test("a program names none, and caches are told that it might have", async () => {
    const answer = await ask("/v1/agents", { headers: { authorization: "Bearer dev.acme.ann" } });
    expect([answer.status, answer.headers.get("vary")]).toEqual([200, "Origin"]);
    expect(answer.headers.has("access-control-allow-origin")).toBe(false);
  });
});

describe("[HTTP8] HEAD and OPTIONS", () => {
  test("HEAD is answered as GET, without the body", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const headers = { authorization: "Bearer dev.acme.ann" };
    for (const path of [
      `/v1/sessions/${session}`,
      `/v1/sessions/${session}/runs/${ref.run}/events`,
      "/v1/agents",
    ]) {
      const [get, head] = [
        await ask(path, { headers }),
        await ask(path, { method: "HEAD", headers }),
      ];
      const body = await get.text();
      expect([head.status, head.headers.get("content-length")]).toEqual([200, `${body.length}`]);
      expect(head.headers.get("content-type")).toBe(get.headers.get("content-type"));
      expect(await head.text()).toBe("");
    }
    for (const [status, path] of [
      [404, "/v1/sessions/none"],
      [404, "/nowhere"],
      [405, "/v1/tickets"],
    ] as const) {
      expect([path, (await ask(path, { method: "HEAD", headers })).status]).toEqual([path, status]);
    }
  });

  test("HEAD of a stream begins none", async () => {
    const session = await stage.session(edge);
    const headers = { authorization: "Bearer dev.acme.ann", accept: "text/event-stream" };
    const before = edge.measured.connections.granted;
    const head = await ask(`/v1/sessions/${session}/events`, { method: "HEAD", headers });
    expect([head.status, head.headers.get("content-type")]).toEqual([
      200,
      "text/event-stream; charset=utf-8",
    ]);
    expect((await ask("/v1/sessions/none/events", { method: "HEAD", headers })).status).toBe(404);
    expect(edge.measured.connections.granted).toBe(before);
  });

  test("several on one connection, each answered by itself", async () => {
    // fetch keeps its connections: a body behind a HEAD would be read as the next answer.
    for (let i = 0; i < 10; i += 1) {
      expect((await ask("/v1/agents", { method: i % 2 === 0 ? "HEAD" : "OPTIONS" })).status).toBe(
        i % 2 === 0 ? 401 : 204,
      );
    }
    const plain = await ask("/v1/agents", { method: "OPTIONS" });
    expect([plain.status, plain.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
  });
});

describe("[TIX2] POST /v1/tickets", () => {
  const give = (body: object, node: Edge = edge): ReturnType<Api["post"]> =>
    ann(node).post("/v1/tickets", body);

  test("gives a URL that an EventSource can open at any node, for its run alone, and for reading alone", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const { ref: sibling } = await stage.run(session);
    const { status, body } = await give({ kind: "stream", session_id: session, run_id: ref.run });
    expect([status, body]).toMatchObject([
      201,
      { kind: "stream", ticket: expect.any(String) as string },
    ]);
    const hour = Number(body["expires_at"]) - Date.now();
    expect(hour).toBeGreaterThan(59 * 60_000);
    expect(hour).toBeLessThanOrEqual(60 * 60_000);
    const url = String(body["url"]);
    const stream = await EventStreamClient.open(`http://127.0.0.1:${other.port}${url}`);
    await eventually(() => stream.messages.some(({ data }) => data?.includes("caught_up")));
    await writer.append(note("live"));
    await eventually(() => stream.messages.some(({ data }) => data?.includes('"live"')));
    stream.close();
    // The page, and the state that a snapshot may only name.
    const ticket = String(body["ticket"]);
    const runPath = `/v1/sessions/${session}/runs/${ref.run}`;
    expect((await ask(`${runPath}/events?ticket=${ticket}`)).status).toBe(200);
    expect((await ask(`${runPath}?ticket=${ticket}`)).status).toBe(200);
    for (const path of [
      `/v1/sessions/${session}/runs/${sibling.run}/events`,
      `/v1/sessions/${session}/events`,
      `/v1/sessions/${session}x/runs/${ref.run}/events`,
    ]) {
      const refused = await ask(`${path}?ticket=${ticket}`);
      expect([path, refused.status]).toEqual([path, 403]);
    }
    for (const [path, method] of [
      [`/v1/sessions/${session}`, "GET"],
      ["/v1/sessions", "GET"],
      ["/v1/tickets", "POST"],
      [`${runPath}/commands`, "POST"],
    ] as const) {
      const refused = await ask(`${path}?ticket=${ticket}`, { method });
      expect([path, refused.status]).toEqual([path, 401]);
    }
    const session_ = (await give({ kind: "stream", session_id: session })).body;
    const whole = `ticket=${String(session_["ticket"])}`;
    expect((await ask(`/v1/sessions/${session}/events?${whole}`)).status).toBe(200);
    expect((await ask(`/v1/sessions/${session}/runs/${sibling.run}/events?${whole}`)).status).toBe(
      200,
    );
  });

  test("[INV11] [AUTH5] for what the user may read, each time anew", async () => {
    const watchful = await stage.edge({ limits: { connection: { membershipMs: 200 } } });
    const session = await stage.session(edge);
    const members = `/v1/sessions/${session}/members`;
    await ann(watchful).post(members, { user: "vic", role: "viewer" });
    const asked = { kind: "stream", session_id: session };
    expect((await new Api(edge, "dev.acme.eve").post("/v1/tickets", asked)).status).toBe(404);
    expect((await new Api(edge, "dev.umbrella.ann").post("/v1/tickets", asked)).status).toBe(404);
    const { body } = await new Api(watchful, "dev.acme.vic").post("/v1/tickets", asked);
    const url = `http://127.0.0.1:${watchful.port}${String(body["url"])}`;
    const stream = await EventStreamClient.open(url);
    expect(stream.status).toBe(200);
    await ann(watchful).post(members, { user: "vic", role: null });
    await stream.end();
    expect(stream.messages.at(-1)?.data).toContain('"reason":"membership"');
    expect((await EventStreamClient.open(url)).status).toBe(404);
  });

  test("[TIX3] a stream ends when its ticket does, and cannot be opened again with it", async () => {
    const session = await stage.session(edge);
    const { body } = await give({ kind: "stream", session_id: session, ttl_ms: 2_000 });
    const url = `http://127.0.0.1:${edge.port}${String(body["url"])}`;
    const stream = await EventStreamClient.open(url);
    expect(stream.status).toBe(200);
    expect(await stream.end()).toBe("whole");
    expect(stream.messages.at(-1)?.data).toContain('"code":"unauthenticated"');
    const again = await EventStreamClient.open(url);
    await again.end();
    expect([again.status, again.rest]).toEqual([401, expect.stringContaining("has expired")]);
    expect(JSON.stringify(stage.logged)).not.toContain(String(body["ticket"]));
  });

  test.each([
    [{}, "kind"],
    [{ kind: "connect" }, "unavailable"],
    [{ kind: "stream" }, "session_id"],
    [{ kind: "stream", session_id: "a.b" }, "session_id"],
    [{ kind: "stream", session_id: "s", run_id: "*" }, "run_id"],
    [{ kind: "stream", session_id: "s", ttl_ms: 999 }, "ttl_ms"],
    [{ kind: "stream", session_id: "s", ttl_ms: 86_400_001 }, "ttl_ms"],
    [{ kind: "stream", session_id: "s", ttl_ms: 1.5e4 + 0.5 }, "ttl_ms"],
  ])("%j is refused, and says what is wrong", async (asked, what) => {
    const { status, body } = await give(asked);
    expect([422, 503]).toContain(status);
    expect(JSON.stringify(body)).toContain(what);
  });

  test("without a key a node gives none, and says what to set", async () => {
    const keyless = await stage.edge({ streamKeys: [] });
    const session = await stage.session(keyless);
    const { status, body } = await give({ kind: "stream", session_id: session }, keyless);
    expect([status, body["detail"]]).toEqual([503, expect.stringContaining("TL_STREAM_KEY")]);
  });

  test("[CORS2] is no way around the origin of a page", async () => {
    const session = await stage.session(edge);
    const { body } = await give({ kind: "stream", session_id: session });
    const url = String(body["url"]);
    expect((await ask(url, { headers: { origin: EVIL } })).status).toBe(403);
    const allowed = await ask(url, { headers: { origin: APP } });
    expect([allowed.status, allowed.headers.get("access-control-allow-origin")]).toEqual([
      200,
      APP,
    ]);
  });
});
