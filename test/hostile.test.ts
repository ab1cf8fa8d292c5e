import { formatCursor, MAX_FRAME_BYTES, parseCursor } from "@throughline/protocol";
import { type Edge, eventually, removeDir, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let edge: Edge;
let folder: string;

beforeAll(async () => {
  folder = tempDir("hostile");
  writeFileSync(join(folder, "a.ts"), "export const a = 1;\n");
  world = await startWorld();
  edge = await world.edge();
  await world.runtime({ allowedRoots: [folder] });
});
afterAll(async () => {
  await world.dispose();
  removeDir(folder);
});

function many(count: number, value: unknown): Record<string, unknown> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`u${i}`, value]));
}

function post(path: string, body: unknown, token = "dev.acme.ann"): Promise<Response> {
  return fetch(`${edge.url}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function finishedRun(client: RawClient): Promise<{ session: string; run: string }> {
  const session = await client.createSession();
  const run = await client.start(session, "repo-report", { path: folder }, "start_1");
  await client.subscribe(session, run);
  await client.terminal(run);
  return { session, run };
}

describe("more than a command may hold", () => {
  test("[INV7] [C28] members, results and tools beyond the limit are one clear error over every door", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    for (const value of ["viewer", 1]) {
      const payload = { members: many(20_000, value) };
      const refused = await client.ask({ type: "session.create", payload });
      expect(refused).toMatchObject({ code: "invalid", path: "payload.members" });
      expect((await post("/v1/sessions", payload)).status).toBe(422);
    }
    const most = { members: many(256, "viewer") };
    expect(await client.ask({ type: "session.create", payload: most })).toMatchObject({
      type: "session.created",
    });
    client.close();
  });

  test("[INV7] heartbeats in between do not make up for frames that cannot be read", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    for (let i = 0; i < 40 && !client.closed; i += 1) {
      client.send({ type: "heartbeat", payload: { ts: Date.now() } });
      client.sendText("{");
    }
    const closed = await eventually(() => client.closed);
    expect(closed.code).toBe(4400);
  });
});

describe("strangers", () => {
  test("[INV7] [INV11] a post without a token is refused before its body has come", async () => {
    const socket = connect(edge.port, "127.0.0.1");
    let answer = "";
    socket.on("data", (data) => (answer += data.toString("latin1")));
    socket.on("error", () => undefined);
    socket.write(
      `POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${MAX_FRAME_BYTES - 1}\r\n\r\n${"x".repeat(1_000)}`,
    );
    await eventually(() => answer.startsWith("HTTP/1.1 401"), { what: () => answer });
    socket.destroy();
  });
});

describe("ids and cursors used where they do not belong", () => {
  test("[INV5] [C21] the id that started a run is no id for a command to it", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    const session = await client.createSession();
    const run = await client.start(session, "nobody-offers-this", {}, "used");
    const again = await client.ask({
      type: "run.interrupt",
      id: "used",
      session_id: session,
      run_id: run,
      payload: {},
    });
    expect(again).toMatchObject({ type: "command.rejected", code: "idempotency_conflict" });
    client.close();
  });

  test("the commands' path of a run takes commands to a run only", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    const { session, run } = await finishedRun(client);
    const path = `/v1/sessions/${session}/runs/${run}/commands`;
    for (const body of [
      { type: "run.start", payload: { agent: "repo-report", input: { path: folder } } },
      { type: "session.create", payload: {} },
    ]) {
      const response = await post(path, body);
      expect(response.status).toBe(422);
      expect(await response.json()).toMatchObject({ code: "invalid" });
    }
    client.close();
  });

  test("[INV8] a cursor that has seen nothing and stands behind the beginning is not believed", async () => {
    const first = await RawClient.connect(edge.connectUrl);
    const { session, run } = await finishedRun(first);
    const end = parseCursor(first.events(run).at(-1)?.cursor);
    first.close();
    for (const streamSeq of [end?.streamSeq ?? 0, Number.MAX_SAFE_INTEGER]) {
      const client = await RawClient.connect(edge.connectUrl);
      const cursor = formatCursor({ seq: 0, streamSeq, tag: end?.tag ?? "" });
      const answer = await client.subscribe(session, run, { cursor });
      expect(answer).toMatchObject({ type: "subscribed", recovered: false });
      await client.frame((f) => f.type === "snapshot" || f.seq === 1);
      client.close();
    }
  });
});
