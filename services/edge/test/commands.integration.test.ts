import { deriveRunId, deriveSessionId, type StoredCommand } from "@throughline/broker";
import { eventually } from "@throughline/testkit";
import { connect as tcpConnect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { completed, freshId, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
});
afterAll(() => stage.close());

const start = (
  session: string,
  id: string,
  input: unknown = { n: 1 },
): { type: string; [f: string]: unknown } => ({
  type: "run.start",
  id,
  session_id: session,
  payload: { agent: "echo", input },
});

async function storedCommands(ref: {
  tenant: string;
  session: string;
  run: string;
}): Promise<StoredCommand[]> {
  const stored: StoredCommand[] = [];
  const tail = stage.broker.commands.tail(ref, 0, {
    command: (c) => void stored.push(c),
    fault: () => undefined,
  });
  await tail.drainToLeader();
  tail.close();
  return stored;
}

describe("creating and starting", () => {
  test("[EXEC2] [EXEC3] a session.create retried through another node is the same session", async () => {
    const id = freshId();
    const [a, b] = await Promise.all([stage.connected(edge), stage.connected(other)]);
    const create = {
      type: "session.create",
      id,
      payload: { title: "one", members: { bob: "viewer" } },
    };
    const first = await a.ask(create);
    expect(first).toMatchObject({ type: "session.created", duplicate: false });
    expect(await b.ask(create)).toEqual({ ...first, duplicate: true });
    const changed = { ...create, payload: { title: "two" } };
    expect(await b.ask(changed)).toMatchObject({
      type: "command.rejected",
      code: "idempotency_conflict",
    });
  });

  test("[EXEC1] [EXEC3] [C20] one start through two nodes at once is one run, stored when it is accepted", async () => {
    const session = await stage.session(edge);
    for (let i = 0; i < 10; i += 1) {
      const id = freshId();
      const clients = await Promise.all(
        [edge, other, edge, other].map((node) => stage.connected(node)),
      );
      const answers = await Promise.all(clients.map((client) => client.ask(start(session, id))));
      const run = deriveRunId({ tenant: "acme", user: "ann", session, id });
      expect(answers.map((a) => [a.type, a.run_id])).toEqual(
        Array(4).fill(["command.accepted", run]),
      );
      expect(answers.filter((a) => a.duplicate === false)).toHaveLength(1);
      const page = await stage.broker.events.read({ kind: "run", tenant: "acme", session, run }, 0);
      expect(page.messages).toHaveLength(1);
      const event: unknown = JSON.parse(Buffer.from(page.messages[0]?.body ?? []).toString("utf8"));
      expect(event).toMatchObject({
        type: "run.queued",
        seq: 1,
        reply_to: id,
        payload: {
          agent: "echo",
          input: { n: 1 },
          by: "ann",
          deadline: expect.any(Number) as number,
        },
      });
      for (const client of clients) client.close();
    }
  });

  test("[EXEC2] [C04] [C07] [C21] the link dies before the answer; the retry elsewhere is a duplicate, another body a conflict", async () => {
    const session = await stage.session(edge);
    const id = freshId();
    const first = await stage.connected(edge);
    first.send(start(session, id));
    first.terminate();
    const run = deriveRunId({ tenant: "acme", user: "ann", session, id });
    const filter = { kind: "run", tenant: "acme", session, run } as const;
    await eventually(() => stage.broker.events.last(filter, "leader"));
    const second = await stage.connected(other);
    expect(await second.ask(start(session, id))).toMatchObject({ duplicate: true, run_id: run });
    expect(await second.ask(start(session, id, { n: 2 }))).toMatchObject({
      code: "idempotency_conflict",
    });
    const agent = { ...start(session, id), payload: { agent: "other", input: { n: 1 } } };
    expect(await second.ask(agent)).toMatchObject({ code: "idempotency_conflict" });
    // The same id in another session, and of another user, is another run.
    const elsewhere = await stage.session(edge);
    const third = await second.ask(start(elsewhere, id));
    expect(third).toMatchObject({ duplicate: false });
    expect(third.run_id).not.toBe(run);
  });

  test("[SUB3] [AUTH2] a viewer reads and may not start", async () => {
    const owner = await stage.connected(edge);
    const { session_id } = await owner.ask({
      type: "session.create",
      payload: { members: { vic: "viewer", bob: "operator" } },
    });
    const session = session_id ?? "";
    const viewer = await stage.connected(edge, { token: "dev.acme.vic" });
    expect(await viewer.subscribe({ session })).toMatchObject({ type: "subscribed" });
    expect(await viewer.ask(start(session, freshId()))).toMatchObject({ code: "forbidden" });
    const operator = await stage.connected(edge, { token: "dev.acme.bob" });
    expect(await operator.ask(start(session, freshId()))).toMatchObject({
      type: "command.accepted",
    });
  });
});

describe("steering", () => {
  test("[EXEC6] every run command goes to the run's log as it came, with its user", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const client = await stage.connected(edge);
    const to = { session_id: session, run_id: ref.run };
    const commands = [
      { type: "run.interrupt", ...to, payload: { preserve_context: true } },
      { type: "run.resume", ...to },
      { type: "run.continue", ...to, payload: { content: "go on" } },
      { type: "step.retry", ...to, payload: { step_id: "s1" } },
      {
        type: "approval.respond",
        ...to,
        reply_to: `${ref.run}.4`,
        payload: { approval_id: "a1", decision: "allow" },
      },
      { type: "tool_call.claim", ...to, payload: { tool_call_id: "t1", claim_id: "k1" } },
      { type: "tool_result.report", ...to, payload: { tool_call_id: "t1", result: null } },
      { type: "input.respond", ...to, payload: { input_id: "i1", content: { a: 1 } } },
      { type: "run.cancel", ...to, payload: { reason: "enough" } },
    ];
    for (const command of commands) {
      expect(await client.ask(command)).toMatchObject({
        type: "command.accepted",
        run_id: ref.run,
        duplicate: false,
      });
    }
    const stored = await storedCommands(ref);
    expect(stored.map((c) => c.user)).toEqual(Array(commands.length).fill("ann"));
    commands.forEach((command, i) => expect(stored[i]?.command).toMatchObject(command));
  });

  test("[EXEC2] [C04] [C21] a retried command is a duplicate, another body a conflict: one is stored", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const [a, b] = await Promise.all([stage.connected(edge), stage.connected(other)]);
    const id = freshId();
    const command = {
      type: "run.continue",
      id,
      session_id: session,
      run_id: ref.run,
      payload: { content: 1 },
    };
    expect(await a.ask(command)).toMatchObject({ duplicate: false });
    expect(await b.ask(command)).toMatchObject({ type: "command.accepted", duplicate: true });
    const changed = { ...command, payload: { content: 2 } };
    expect(await b.ask(changed)).toMatchObject({ code: "idempotency_conflict" });
    expect(await storedCommands(ref)).toHaveLength(1);
  });

  test("[EXEC5] a finished run takes nothing new, and still knows the command that ended it", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const client = await stage.connected(edge);
    const to = { session_id: session, run_id: ref.run };
    const cancel = { type: "run.cancel", id: freshId(), ...to, payload: { reason: "enough" } };
    expect(await client.ask(cancel)).toMatchObject({ duplicate: false });
    await writer.append({ type: "run.cancelled", payload: { by: "ann" } });
    const late = { type: "run.continue", ...to, payload: { content: 1 } };
    expect(await client.ask(late)).toMatchObject({ type: "command.rejected", code: "run_ended" });
    const elsewhere = await stage.connected(other);
    expect(await elsewhere.ask(cancel)).toMatchObject({
      type: "command.accepted",
      duplicate: true,
    });
    expect(await elsewhere.ask({ ...cancel, payload: {} })).toMatchObject({
      code: "idempotency_conflict",
    });
    expect(await storedCommands(ref)).toHaveLength(1);
  });

  test("[EXEC7] cancel by the start's id; an unknown run is not found", async () => {
    const session = await stage.session(edge);
    const client = await stage.connected(edge);
    const startId = freshId();
    const started = await client.ask(start(session, startId));
    const cancel = { type: "run.cancel", session_id: session, payload: { start_id: startId } };
    expect(await client.ask(cancel)).toMatchObject({
      type: "command.accepted",
      run_id: started.run_id,
    });
    const unknown = { type: "run.cancel", session_id: session, payload: { start_id: "never" } };
    expect(await client.ask(unknown)).toMatchObject({ code: "not_found" });
    expect(
      await client.ask({ type: "run.retry", session_id: session, run_id: started.run_id }),
    ).toMatchObject({ code: "not_allowed" });
  });

  test("[EXEC7] a cancellation that overtakes its start through another node", async () => {
    const session = await stage.session(edge);
    const startId = freshId();
    const [near, far] = [await stage.connected(edge), await stage.connected(other)];
    const cancel = { type: "run.cancel", session_id: session, payload: { start_id: startId } };
    const cancelled = far.ask(cancel);
    // One round trip on the same connection: the cancellation is being looked at.
    far.send({ type: "heartbeat", id: "hb", payload: { ts: 1 } });
    await far.frame("heartbeat.ack");
    const { run_id } = await near.ask(start(session, startId));
    expect(await cancelled).toMatchObject({ type: "command.accepted", run_id });
  });

  test("[EXEC7] [C24] a start and its cancel sent in one breath, and nobody stays: both are stored", async () => {
    const session = await stage.session(edge);
    const startId = freshId();
    const client = await stage.connected(edge);
    client.send(start(session, startId));
    const cancel = { type: "run.cancel", session_id: session, payload: { start_id: startId } };
    client.send({ ...cancel, id: freshId() });
    client.close();
    const run = deriveRunId({ tenant: "acme", user: "ann", session, id: startId });
    const ref = { tenant: "acme", session, run };
    const stored = await eventually(async () => (await storedCommands(ref))[0] ?? false);
    expect(stored.command).toMatchObject({ type: "run.cancel" });
    const after = await stage.connected(other);
    expect(await after.subscribe(ref)).toMatchObject({ recovered: true });
  });

  test("[EXEC11] a stored command says when the edge took it", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const client = await stage.connected(edge);
    const before = Date.now();
    const to = { session_id: session, run_id: ref.run };
    await client.ask({ type: "run.interrupt", ...to });
    const [stored] = await storedCommands(ref);
    expect(stored?.at).toBeGreaterThanOrEqual(before);
    expect(stored?.at).toBeLessThanOrEqual(Date.now());
  });

  test("[CON7] a command finds what the one before it on the connection has made, without waiting for its answer", async () => {
    const session = await stage.session(edge);
    const client = await stage.connected(edge);
    const ids = Array.from({ length: 10 }, freshId);
    for (const id of ids) {
      client.send(start(session, id));
      client.send({
        type: "run.cancel",
        id: `x${id}`,
        session_id: session,
        payload: { start_id: id },
      });
    }
    await client.frame("command.accepted", 20);
    expect(client.frames.filter((f) => f.type === "command.rejected")).toEqual([]);
    const created = freshId();
    client.send({ type: "session.create", id: created });
    const made = deriveSessionId({ tenant: "acme", user: "ann", id: created });
    expect(await client.subscribe({ session: made })).toMatchObject({ type: "subscribed" });
  });

  test("[INV9] a viewer's going does nothing to the run", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const client = await stage.connected(edge);
    await client.subscribe(ref);
    await client.frame("caught_up");
    client.terminate();
    await writer.append(completed);
    expect(await storedCommands(ref)).toEqual([]);
  });
});

describe("over HTTP", () => {
  const auth = { authorization: "Bearer dev.acme.ann" };
  const url = (node: Edge, path: string): string => `http://127.0.0.1:${node.port}${path}`;

  async function post(
    node: Edge,
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<{ status: number; type: string | null; body: Record<string, unknown> }> {
    const response = await fetch(url(node, path), {
      method: "POST",
      headers: { ...auth, ...headers },
      body: typeof body === "string" || body instanceof Buffer ? body : JSON.stringify(body),
    });
    return {
      status: response.status,
      type: response.headers.get("content-type"),
      body: (await response.json()) as Record<string, unknown>,
    };
  }

  test("[HTTP3] [EXEC2] create, start and steer; the same keys over WebSocket are duplicates", async () => {
    const [createKey, startKey, steerKey] = [freshId(), freshId(), freshId()];
    const created = await post(
      edge,
      "/v1/sessions",
      { title: "t" },
      { "idempotency-key": createKey },
    );
    expect(created).toMatchObject({ status: 201, body: { duplicate: false } });
    const session = String(created.body["session_id"]);
    const started = await post(
      edge,
      `/v1/sessions/${session}/runs`,
      { agent: "echo", input: 1 },
      { "idempotency-key": startKey },
    );
    expect(started).toMatchObject({
      status: 202,
      body: { duplicate: false, cursor: expect.stringMatching(/^0-0-/) as string },
    });
    const run = String(started.body["run_id"]);
    const path = `/v1/sessions/${session}/runs/${run}/commands`;
    const steered = await post(edge, path, {
      type: "run.continue",
      id: steerKey,
      payload: { content: 1 },
    });
    expect(steered).toMatchObject({ status: 202, body: { run_id: run, duplicate: false } });

    const client = await stage.connected(other);
    expect(
      await client.ask({ type: "session.create", id: createKey, payload: { title: "t" } }),
    ).toMatchObject({ session_id: session, duplicate: true });
    expect(await client.ask(start(session, startKey, 1))).toMatchObject({
      run_id: run,
      duplicate: true,
    });
    const again = {
      type: "run.continue",
      id: steerKey,
      session_id: session,
      run_id: run,
      payload: { content: 1 },
    };
    expect(await client.ask(again)).toMatchObject({ duplicate: true });
    // The cursor that the start gave is one to follow from.
    expect(
      await client.subscribe({ session, run }, { cursor: String(started.body["cursor"]) }),
    ).toMatchObject({ recovered: true });
    const conflict = await post(
      edge,
      `/v1/sessions/${session}/runs`,
      { agent: "echo", input: 2 },
      { "idempotency-key": startKey },
    );
    expect(conflict).toMatchObject({
      status: 409,
      type: "application/problem+json",
      body: { code: "idempotency_conflict", status: 409 },
    });
  });

  test.each([
    ["no JSON", "/v1/sessions", "{", 400, "malformed"],
    ["no object", "/v1/sessions", "[]", 400, "malformed"],
    ["bytes that are no UTF-8", "/v1/sessions", Buffer.from([0x7b, 0xff, 0x7d]), 400, "malformed"],
    ["a wrong payload", "/v1/sessions", { title: 5 }, 422, "invalid"],
    [
      "a session that is no id",
      "/v1/sessions/a.b/runs",
      { agent: "echo", input: 1 },
      422,
      "invalid",
    ],
    [
      "a session that is a wildcard",
      "/v1/sessions/*/runs",
      { agent: "echo", input: 1 },
      422,
      "invalid",
    ],
    [
      "an unknown session",
      "/v1/sessions/ses_none/runs",
      { agent: "echo", input: 1 },
      404,
      "not_found",
    ],
    [
      "a command of the connection",
      "/v1/sessions/s/runs/r/commands",
      { type: "heartbeat", id: "h", payload: { ts: 1 } },
      422,
      "invalid",
    ],
    [
      "another run than the path's",
      "/v1/sessions/s/runs/r/commands",
      { type: "run.cancel", id: "h", run_id: "x" },
      422,
      "invalid",
    ],
    ["an unknown path", "/v1/nothing", {}, 404, "not_found"],
  ])("[HTTP1] [C28] %s is a problem with its code", async (_what, path, body, status, code) => {
    expect(await post(edge, path, body)).toMatchObject({
      status,
      type: "application/problem+json",
      body: { code, status },
    });
  });

  test("[HTTP1] [AUTH1] credentials, methods, upgrades", async () => {
    const bare = await fetch(url(edge, "/v1/sessions"), { method: "POST", body: "{}" });
    expect([bare.status, bare.headers.get("www-authenticate")]).toEqual([401, "Bearer"]);
    const proxied = await post(edge, "/v1/sessions", {}, { "x-forwarded-for": "1.2.3.4" });
    expect(proxied).toMatchObject({ status: 403, body: { code: "forbidden" } });
    const wrong = await fetch(url(edge, "/v1/sessions"), { method: "DELETE", headers: auth });
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST, GET, HEAD, OPTIONS"]);
    expect(await wrong.json()).toMatchObject({ status: 405, code: "method_not_allowed" });
    const connect = await fetch(url(edge, "/v1/connect"), { headers: auth });
    expect([connect.status, connect.headers.get("upgrade")]).toEqual([426, "websocket"]);
    expect(await connect.json()).toMatchObject({ status: 426, code: "upgrade_required" });
  });

  test("[HTTP4] a body over the limit is refused, one given up half-way leaves nothing, and the node lives", async () => {
    const large = await post(edge, "/v1/sessions", { title: "x".repeat(5_000_000) });
    expect(large).toMatchObject({ status: 413, body: { code: "too_large" } });
    // Far over it the connection may be closed in the middle.
    const endless = await Promise.allSettled([post(edge, "/v1/sessions", "x".repeat(20_000_000))]);
    if (endless[0].status === "fulfilled") expect(endless[0].value.status).toBe(413);
    const half = [
      "POST /v1/sessions HTTP/1.1",
      `Host: 127.0.0.1:${edge.port}`,
      `Authorization: ${auth.authorization}`,
      "Content-Length: 100",
      "",
      '{"title":',
    ].join("\r\n");
    for (let i = 0; i < 50; i += 1) {
      await new Promise<void>((resolve, reject) => {
        const socket = tcpConnect(edge.port, "127.0.0.1", () => {
          socket.write(half, () => socket.destroy());
        });
        socket.on("error", reject);
        socket.on("close", () => resolve());
      });
    }
    expect(await post(edge, "/v1/sessions", {})).toMatchObject({ status: 201 });
  });

  test("[HTTP2] [RES2] [RES4] pages hold what is stored, from any cursor, to the end", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 250; i += 1)
      void writer.append({ type: "custom", payload: { name: "n", value: i } });
    await writer.append(completed);
    const get = async (
      path: string,
    ): Promise<{ status: number; body: Record<string, unknown> }> => {
      const response = await fetch(url(other, `/v1/sessions/${session}${path}`), { headers: auth });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    };
    for (const base of [`/runs/${ref.run}/events`, "/events"]) {
      const seqs: number[] = [];
      let cursor: string | undefined;
      for (let more = true; more;) {
        const page = await get(
          `${base}?limit=37${cursor === undefined ? "" : `&cursor=${cursor}`}`,
        );
        expect(page).toMatchObject({ status: 200, body: { recovered: true } });
        const events = page.body["events"] as { seq: number; cursor: string }[];
        expect(events.length).toBeLessThanOrEqual(37);
        seqs.push(...events.map((event) => event.seq));
        expect(page.body["cursor"]).toBe(events.at(-1)?.cursor ?? cursor);
        cursor = String(page.body["cursor"]);
        more = page.body["more"] === true;
      }
      expect(seqs).toEqual(Array.from({ length: 252 }, (_, i) => i + 1));
      const end = await get(`${base}?cursor=${cursor}`);
      const ended = base === "/events" ? {} : { ended: true };
      expect(end.body).toEqual({ events: [], cursor, more: false, ...ended, recovered: true });
    }
    expect((await get(`/runs/${ref.run}/events?cursor=3-1-zzz`)).body).toMatchObject({
      recovered: false,
      reason: "cursor_invalid",
    });
    for (const query of ["cursor=x", "limit=0", "limit=1001", "limit=1e3"]) {
      expect(await get(`/events?${query}`)).toMatchObject({
        status: 422,
        body: { code: "invalid" },
      });
    }
    expect(await get("/runs/run_none/events")).toMatchObject({ status: 404 });
  });
});

test("[EXEC4] nothing was logged as an error", () => {
  expect(stage.logged.filter((entry) => "err" in entry)).toEqual([]);
});
