import { openAgentDirectory } from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import { runStateSchema } from "@throughline/protocol/schemas";
import { eventually } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { Api } from "./api.ts";
import { completed, freshId, note, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
});
afterAll(() => stage.close());

const as = (user: string, node: Edge = edge): Api => new Api(node, `dev.acme.${user}`);

async function create(user: string, payload: object = {}): Promise<string> {
  const { body } = await as(user).post("/v1/sessions", payload, freshId());
  return String(body.session_id);
}

/** What a run's first event says. */
async function queued(session: string, run: string): Promise<Record<string, unknown>> {
  const { body } = await as("ann").get(`/v1/sessions/${session}/runs/${run}/events`);
  expect(body.events).toMatchObject([{ type: "run.queued", seq: 1 }]);
  const [event] = body.events as { payload: Record<string, unknown> }[];
  return event?.payload ?? {};
}

describe("agents", () => {
  test("[HTTP5] are listed while workers offer them", async () => {
    const directory = openAgentDirectory(stage.broker);
    const offer = { agent: "echo", description: "says it again", examples: [{ text: "hi" }] };
    const announced = directory.announce({ ...offer, worker: "w1" });
    await eventually(async () => {
      const { body } = await as("ann").get("/v1/agents");
      return JSON.stringify(body.agents) === JSON.stringify([{ ...offer, workers: 1 }]);
    });
    await announced.stop();
    await eventually(async () => {
      const { body } = await as("ann", other).get("/v1/agents");
      return Array.isArray(body.agents) && body.agents.length === 0;
    });
  });

  test("[EXEC8] a run of an agent that nobody offers yet is taken: a worker may come", async () => {
    const session = await create("ann");
    const start = { agent: "not-yet", input: null };
    expect(await as("ann").post(`/v1/sessions/${session}/runs`, start)).toMatchObject({
      status: 202,
    });
  });
});

describe("sessions", () => {
  test("[HTTP6] a user's own and those with a part in them, newest first, in pages", async () => {
    const made: string[] = [];
    for (let i = 0; i < 5; i += 1) {
      const members = i % 2 === 0 ? { "mia@x": "viewer" } : {};
      made.unshift(await create("leo", { title: `s${i}`, members }));
    }
    const listed = await as("leo").get("/v1/sessions");
    expect(listed.body).toMatchObject({
      sessions: made.map((session_id, i) => ({
        session_id,
        title: `s${4 - i}`,
        created_at: expect.any(Number) as number,
      })),
    });
    const pages: unknown[] = [];
    let path = "/v1/sessions?limit=2";
    for (let page = 0; page < 3; page += 1) {
      const { body } = await as("leo", other).get(path);
      pages.push(...(body.sessions as { session_id: string }[]).map((s) => s.session_id));
      path = `/v1/sessions?limit=2&before=${String(body.next)}`;
      expect(body.next === undefined).toBe(page === 2);
    }
    expect(pages).toEqual(made);
    const members = await as("mia@x").get("/v1/sessions");
    expect(members.body.sessions).toMatchObject([
      { session_id: made[0] },
      { session_id: made[2] },
      { session_id: made[4] },
    ]);
    // Another tenant's user of the same name has none.
    const stranger = await new Api(edge, "dev.umbrella.leo").get("/v1/sessions");
    expect(stranger.body).toEqual({ sessions: [] });
    for (const query of ["limit=0", "limit=x", "limit=201", "before=nonsense", "before=*.>"]) {
      const { status, body } = await as("leo").get(`/v1/sessions?${query}`);
      expect([query, status, body.code]).toEqual([query, 422, "invalid"]);
    }
  });

  test("[HTTP6] [INV7] of very many runs the newest 256, however many are asked for, and that there are more", async () => {
    const session = await create("ann");
    const entry = { tenant: "acme", session, agent: "echo", by: "ann", status: "queued" } as const;
    const names = Array.from({ length: 260 }, (_, i) => `run_${i}`);
    await Promise.all(
      names.map((run, i) => stage.broker.runs.put({ ...entry, run, queued_at: i + 1 })),
    );
    const { body } = await as("ann", other).get(`/v1/sessions/${session}?limit=1000`);
    const listed = (body.runs as { run_id: string }[]).map((each) => each.run_id);
    expect(listed).toEqual(names.toReversed().slice(0, 256));
    expect(body.more).toBe(true);
  });

  test("[HTTP6] the record with its runs, newest first, as the index says", async () => {
    const session = await create("ann", { title: "one", options: { model: "m1" } });
    const runs: string[] = [];
    for (let i = 0; i < 3; i += 1) {
      const { body } = await as("ann").post(`/v1/sessions/${session}/runs`, {
        agent: "echo",
        input: i,
      });
      runs.unshift(String(body.run_id));
    }
    const [last = "", , first = ""] = runs;
    const ended = { tenant: "acme", session, run: first, agent: "echo", by: "ann" } as const;
    await stage.broker.runs.put({ ...ended, status: "failed", queued_at: 1, ended_at: 2 });
    const { status, body } = await as("ann", other).get(`/v1/sessions/${session}?limit=2`);
    expect([status, body]).toMatchObject([
      200,
      {
        session_id: session,
        owner: "ann",
        title: "one",
        members: {},
        options: { model: "m1" },
        runs: [{ run_id: last, agent: "echo", status: "queued", by: "ann" }, {}],
        more: true,
      },
    ]);
    const all = await as("ann").get(`/v1/sessions/${session}`);
    expect(all.body.more).toBe(false);
    expect((all.body.runs as unknown[]).at(-1)).toMatchObject({ run_id: first, status: "failed" });
    const stranger = await new Api(edge, "dev.umbrella.ann").get(`/v1/sessions/${session}`);
    expect(stranger).toMatchObject({ status: 404, body: { code: "not_found" } });
  });

  test("[AUTH4] [INV11] an owner gives and takes roles; nobody else does, and the maker stays", async () => {
    const session = await create("ann", { members: { vic: "viewer" } });
    const path = `/v1/sessions/${session}`;
    const start = { agent: "echo", input: 1 };
    expect((await as("vic").post(`${path}/runs`, start)).status).toBe(403);
    const raise = { user: "vic", role: "operator" };
    expect((await as("vic").post(`${path}/members`, raise)).status).toBe(403);
    expect((await as("eve").post(`${path}/members`, raise)).status).toBe(404);
    expect(await as("ann").post(`${path}/members`, raise)).toMatchObject({
      status: 200,
      body: raise,
    });
    expect((await as("vic").post(`${path}/runs`, start)).status).toBe(202);
    expect((await as("ann").post(`${path}/members`, raise)).status).toBe(200);
    await as("ann").post(`${path}/members`, { user: "eve", role: "viewer" });
    expect((await as("eve").get("/v1/sessions")).body.sessions).toMatchObject([
      { session_id: session },
    ]);
    await as("ann").post(`${path}/members`, { user: "eve", role: null });
    expect((await as("eve").get(path)).status).toBe(404);
    expect((await as("eve").get("/v1/sessions")).body).toEqual({ sessions: [] });
    expect((await as("ann").get(path)).body.members).toEqual({ vic: "operator" });
    const own = await as("ann").post(`${path}/members`, { user: "ann", role: null });
    expect(own).toMatchObject({ status: 409, body: { code: "not_allowed" } });
    for (const wrong of [
      {},
      { user: "x", role: "king" },
      { user: "", role: null },
      { role: null },
    ]) {
      const { status, body } = await as("ann").post(`${path}/members`, wrong);
      expect([status, body.code]).toEqual([422, "invalid"]);
    }
    const odd = await as("ann").raw(`${path}/members`, {
      method: "POST",
      body: '{"user": "__proto__", "role": "owner"}',
    });
    expect(odd.status).toBe(422);
  });

  test("[AUTH5] [INV11] who loses the part in a session is let go of its subscriptions, and no other is", async () => {
    const node = await stage.edge({ limits: { connection: { membershipMs: 100 } } });
    const session = await create("ann", { members: { vic: "viewer" } });
    const { ref, writer } = await stage.run(session);
    const owner = await stage.connected(node);
    const viewer = await stage.connected(node, { token: "dev.acme.vic" });
    for (const client of [owner, viewer]) await client.subscribe(ref);
    await as("ann").post(`/v1/sessions/${session}/members`, { user: "vic", role: null });
    const gone = await viewer.until(
      () => viewer.frames.find((f) => f.type === "unsubscribed"),
      "the end of the subscription",
    );
    expect(gone).toMatchObject({ reason: "membership" });
    await writer.append(note("secret"));
    await owner.until(() => owner.seqs()[1], "an event");
    expect(viewer.seqs()).toEqual([1]);
    expect(await viewer.subscribe(ref)).toMatchObject({ code: "not_found" });
    expect(owner.frames.filter((f) => f.type === "unsubscribed")).toEqual([]);
  }, 20_000);

  test("[EXEC9] options of the session hold where the start says nothing else", async () => {
    const options = { model: "m1", temperature: 0.5, own: { a: 1 } };
    const session = await create("ann", { options });
    const path = `/v1/sessions/${session}/runs`;
    const plain = await as("ann").post(path, { agent: "echo", input: 1 });
    expect((await queued(session, String(plain.body.run_id))).options).toEqual(options);
    const start = { agent: "echo", input: 1, options: { model: "m2", own: 2 } };
    const key = freshId();
    const other_ = await as("ann").post(path, start, key);
    const payload = await queued(session, String(other_.body.run_id));
    expect(payload.options).toEqual({ model: "m2", temperature: 0.5, own: 2 });
    expect((await as("ann", other).post(path, start, key)).body).toMatchObject({ duplicate: true });
  });

  test("[EXEC9] what with the session's options would be too large for an event is refused, and nothing is started", async () => {
    const session = await create("ann", { options: { system: "s".repeat(300_000) } });
    const client = await stage.connected(edge);
    const start = {
      type: "run.start",
      session_id: session,
      payload: { agent: "echo", input: 1, options: { more: "m".repeat(300_000) } },
    };
    expect(await client.ask(start)).toMatchObject({ type: "command.rejected", code: "too_large" });
    expect((await as("ann").get(`/v1/sessions/${session}`)).body.runs).toEqual([]);
  });
});

describe("large values and artifacts", () => {
  const input = { text: "é".repeat(100_000) };

  test("[EXEC10] [ART1] a large input is an object of the session, over WebSocket and HTTP, once for all retries", async () => {
    const session = await create("ann");
    const client = await stage.connected(edge);
    const id = freshId();
    const payload = { agent: "echo", input };
    const started = await client.ask({ type: "run.start", id, session_id: session, payload });
    const again = await as("ann", other).post(`/v1/sessions/${session}/runs`, payload, id);
    expect(again).toMatchObject({
      status: 202,
      body: { run_id: started.run_id, duplicate: true },
    });
    const over = await as("ann").post(`/v1/sessions/${session}/runs`, payload);
    const json = JSON.stringify(input);
    const references = await Promise.all(
      [started.run_id, over.body.run_id].map(async (run) => {
        return (await queued(session, String(run))).input as { $artifact: string; bytes: number };
      }),
    );
    expect(references[0]).toEqual(references[1]);
    expect(references[0]?.bytes).toBe(Buffer.byteLength(json));
    const path = `/v1/sessions/${session}/artifacts/${references[0]?.$artifact}`;
    const response = await as("ann", other).raw(path);
    expect([response.status, await response.text()]).toEqual([200, json]);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "application/json",
      "content-disposition": `attachment; filename="${references[0]?.$artifact}"`,
      "x-content-type-options": "nosniff",
      "content-security-policy": "sandbox; default-src 'none'",
      "content-length": String(Buffer.byteLength(json)),
      "cache-control": "private, no-store",
    });
  });

  test("[ART2] [INV11] [C30] an artifact is its session's: elsewhere, for strangers and as another id it is not there", async () => {
    const session = await create("ann", { members: { vic: "viewer" } });
    const ref = { tenant: "acme", session };
    const html = Buffer.from("<script>alert(1)</script>");
    const { $artifact } = await stage.broker.objects.put(ref, html, "text/html");
    const path = (s: string, id: string): string => `/v1/sessions/${s}/artifacts/${id}`;
    const read = await as("vic").raw(path(session, $artifact));
    expect([read.status, read.headers.get("content-type")]).toEqual([200, "text/html"]);
    expect(Buffer.from(await read.arrayBuffer())).toEqual(html);
    const elsewhere = await create("ann");
    const asked = await Promise.all([
      as("eve").get(path(session, $artifact)),
      new Api(edge, "dev.umbrella.ann").get(path(session, $artifact)),
      as("ann").get(path(elsewhere, $artifact)),
      as("ann").get(path(session, "art_unknown")),
    ]);
    expect(asked.map(({ status, body }) => [status, body.code])).toEqual(
      Array(4).fill([404, "not_found"]),
    );
    for (const id of ["a.b", "*", "%3E", "x%2F..%2Fy"]) {
      expect((await as("ann").get(path(session, id))).status).toBe(422);
    }
  });

  test("[ART3] megabytes come whole, and one who gives up half-way leaves no place taken", async () => {
    const session = await create("ann");
    const bytes = Buffer.alloc(12 * 1024 * 1024);
    for (let i = 0; i < bytes.length; i += 4) bytes.writeUInt32LE((i * 2_654_435_761) >>> 0, i);
    const { $artifact } = await stage.broker.objects.put({ tenant: "acme", session }, bytes);
    const path = `/v1/sessions/${session}/artifacts/${$artifact}`;
    for (let i = 0; i < 12; i += 1) {
      const response = await as("ann").raw(path);
      const reader = response.body?.getReader();
      await reader?.read();
      await reader?.cancel();
    }
    await eventually(async () => {
      const response = await as("ann").raw(path);
      if (response.status === 503) return false;
      expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
      return true;
    });
  });
});

describe("the state of a run", () => {
  const path = (ref: { session: string; run: string }): string =>
    `/v1/sessions/${ref.session}/runs/${ref.run}`;
  const stateOf = async (ref: { session: string; run: string }): Promise<RunState> =>
    runStateSchema.parse((await as("ann", other).get(path(ref))).body.state);

  test("[STATE1] is as of everything that is stored, with and without a snapshot", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    expect(await stateOf(ref)).toMatchObject({ status: "queued", seq: 1, agent: "echo" });
    for (let i = 0; i < 300; i += 1) void writer.append(note(i));
    await writer.append(note("last"));
    expect(await stateOf(ref)).toMatchObject({ seq: 302 });
    await stage.snapshot(ref, writer);
    await writer.append(completed);
    const { body } = await as("ann").get(path(ref));
    expect(body).toMatchObject({ state: { seq: 303, status: "completed", output: "done" } });
    // Its cursor is the last event's.
    const page = await as("ann").get(`${path(ref)}/events?cursor=${String(body.cursor)}`);
    expect(page.body).toMatchObject({ events: [], recovered: true, more: false });
  });

  test("[STATE2] what another incarnation or version left is passed over while the log has the run", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    await writer.append(note(1));
    const [, second] = (await stage.broker.events.read({ kind: "run", ...ref }, 0)).messages;
    const mark = { seq: 2, attempt: 1, writer: "w", cmd: 0, streamSeq: second?.streamSeq ?? 0 };
    const epoch = second?.epoch ?? "";
    await stage.broker.snapshots.write(ref, { state: { odd: true }, epoch, ...mark });
    expect(await stateOf(ref)).toMatchObject({ seq: 2, status: "queued" });
    const unknown = await as("ann").get(path({ session, run: "run_unknown" }));
    expect(unknown).toMatchObject({ status: 404, body: { code: "not_found" } });
    const stranger = await new Api(edge, "dev.umbrella.ann").get(path(ref));
    expect(stranger.status).toBe(404);
  });
});
