/** Event streams: the same frames as over a WebSocket, on a response that goes on. */
import { parseCursor } from "@throughline/protocol";
import { EventStreamClient, eventually, type StreamMessage } from "@throughline/testkit";
import { execFile } from "node:child_process";
import { Agent, get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { Api } from "./api.ts";
import { completed, type Frame, note, range, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge({ limits: { connection: { commentMs: 300 } } });
  other = await stage.edge();
});
afterAll(async () => {
  await stage.close();
  expect(stage.logged.filter((entry) => "err" in entry)).toEqual([]);
});

const AUTH = { authorization: "Bearer dev.acme.ann" };
const streams: EventStreamClient[] = [];
afterAll(() => streams.forEach((stream) => stream.close()));

interface Place {
  readonly session: string;
  readonly run?: string;
}

async function open(
  node: Edge,
  { session, run }: Place,
  { query = "", headers = {} }: { query?: string; headers?: Record<string, string> } = {},
): Promise<EventStreamClient> {
  const path = run === undefined ? session : `${session}/runs/${run}`;
  const url = `http://127.0.0.1:${node.port}/v1/sessions/${path}/events${query}`;
  const stream = await EventStreamClient.open(url, { ...AUTH, ...headers });
  streams.push(stream);
  return stream;
}

/** Each message is parsed once: tests look at them again and again. */
const parsed = new WeakMap<StreamMessage, Frame>();
function frameOf(message: StreamMessage): Frame[] {
  if (message.data === undefined) return [];
  const frame = parsed.get(message) ?? (JSON.parse(message.data) as Frame);
  parsed.set(message, frame);
  return [frame];
}
const framesOf = (stream: EventStreamClient): Frame[] => stream.messages.flatMap(frameOf);
const seqsOf = (stream: EventStreamClient): number[] =>
  framesOf(stream).flatMap(({ seq }) => seq ?? []);
const typesOf = (stream: EventStreamClient): string[] =>
  framesOf(stream)
    .map(({ type, seq }) => (seq === undefined ? type : "event"))
    .filter((type, i, all) => type !== all[i - 1]);
const until = (stream: EventStreamClient, type: string): Promise<unknown> =>
  eventually(() => framesOf(stream).some((frame) => frame.type === type));

describe("[SSE1] a stream", () => {
  test("[SUB1] brings the frames of a subscription, each event with its cursor as id, and ends after the terminal", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 5; i += 1) await writer.append(note(i));
    const stream = await open(other, ref);
    expect(stream.status).toBe(200);
    expect(stream.response.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
    await until(stream, "caught_up");
    for (let i = 5; i < 60; i += 1) void writer.append(note(i));
    await writer.append(completed);
    expect(await stream.end()).toBe("whole");
    expect(seqsOf(stream)).toEqual(range(1, 62));
    expect(typesOf(stream)).toEqual(["subscribed", "event", "caught_up", "event", "unsubscribed"]);
    expect(framesOf(stream).at(-1)).toMatchObject({ reason: "run_ended" });
    for (const message of stream.messages) {
      const [frame] = frameOf(message);
      // Control frames have none; what only moves the place has no data.
      if (frame !== undefined)
        expect(message.id).toBe(frame.seq === undefined ? undefined : frame.cursor);
    }
    // As over a WebSocket, to the letter.
    const client = await stage.connected(edge);
    await client.subscribe(ref);
    await client.frame("unsubscribed");
    expect(framesOf(stream).filter(({ seq }) => seq !== undefined)).toEqual(client.events);
  });

  test("[SSE2] reconnecting behind the run's end is answered by 204, so that an EventSource stops", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    await writer.append(completed);
    const stream = await open(edge, ref);
    await stream.end();
    const last = stream.lastEventId ?? "";
    expect(parseCursor(last)?.seq).toBe(2);
    for (const node of [edge, other]) {
      const again = await open(node, ref, { headers: { "last-event-id": last } });
      expect(again.status).toBe(204);
    }
    expect((await open(edge, ref, { query: `?cursor=${last}` })).status).toBe(204);
    // Without a cursor it is asked for from its beginning.
    const anew = await open(edge, ref);
    await anew.end();
    expect(seqsOf(anew)).toEqual([1, 2]);
  });

  test("[SSE3] a comment comes while nothing else does", async () => {
    const session = await stage.session(edge);
    const { ref } = await stage.run(session);
    const stream = await open(edge, ref);
    await until(stream, "caught_up");
    const before = stream.comments;
    expect(stream.retryMs).toBeGreaterThanOrEqual(500);
    await eventually(() => stream.comments >= before + 2);
    expect(typesOf(stream)).toEqual(["subscribed", "event", "caught_up"]);
  });

  test("curl -N shows events as they come", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const url = `http://127.0.0.1:${edge.port}/v1/sessions/${session}/runs/${ref.run}/events`;
    const args = ["-sN", url, "-H", `Authorization: ${AUTH.authorization}`];
    let text = "";
    const curl = execFile("curl", [...args, "-H", "Accept: text/event-stream"]);
    curl.stdout?.on("data", (chunk: string) => (text += chunk));
    await eventually(() => text.includes('"type":"caught_up"'));
    await writer.append(note("live"));
    await eventually(() => text.includes('"value":"live"'));
    await writer.append(completed);
    await eventually(() => curl.exitCode === 0);
  });
});

describe("[SSE4] coming back", () => {
  test("[C01] before the first event, with what the stream has named as its place; [C02] nothing is repeated", async () => {
    const session = await stage.session(edge);
    const first = await open(edge, { session }, { query: "?from=latest" });
    await until(first, "caught_up");
    first.close();
    const { ref, writer } = await stage.run(session);
    // As an EventSource does: the same URL, and the last id.
    const resume = { query: "?from=latest", headers: { "last-event-id": first.lastEventId ?? "" } };
    const second = await open(other, { session }, resume);
    await until(second, "caught_up");
    expect(framesOf(second).find(({ seq }) => seq === 1)).toMatchObject({ run_id: ref.run });
    second.close();
    const third = await open(
      edge,
      { session },
      { headers: { "last-event-id": second.lastEventId ?? "" } },
    );
    await until(third, "caught_up");
    expect(seqsOf(third)).toEqual([]);
    await writer.append(note(1));
    await eventually(() => seqsOf(third).length === 1);
  });

  test("a WebSocket's cursor goes on over a stream, and a stream's over a WebSocket and a page", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 2; i <= 20; i += 1) await writer.append(note(i));
    const client = await stage.connected(edge);
    await client.subscribe(ref);
    await client.frame("caught_up");
    const at = client.events[6]?.cursor ?? "";
    // The header is the newer of the two.
    const stream = await open(other, ref, {
      query: `?cursor=${client.events[2]?.cursor}`,
      headers: { "last-event-id": at },
    });
    await until(stream, "caught_up");
    expect(seqsOf(stream)).toEqual(range(8, 20));
    const cursor = framesOf(stream).find(({ seq }) => seq === 12)?.cursor ?? "";
    const back = await stage.connected(edge);
    await back.subscribe(ref, { cursor });
    await back.frame("caught_up");
    expect(back.seqs()).toEqual(range(13, 20));
    const page = await new Api(edge).get(
      `/v1/sessions/${session}/runs/${ref.run}/events?cursor=${cursor}`,
    );
    expect(page.body["events"]).toHaveLength(8);
  });

  test("[INV8] from a snapshot, and with a cursor of another run: said openly, as over a WebSocket", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 2; i <= 9; i += 1) await writer.append(note(i));
    await stage.snapshot(ref, writer);
    const shown = await open(edge, ref, { query: "?from=snapshot&deltas=false" });
    await until(shown, "caught_up");
    expect(typesOf(shown)).toEqual(["subscribed", "snapshot", "caught_up"]);
    const [snapshot] = shown.messages.filter(({ data }) => data?.includes('"type":"snapshot"'));
    expect(parseCursor(snapshot?.id)?.seq).toBe(9);

    const { ref: stranger } = await stage.run(session);
    const theirs = await open(edge, stranger);
    await until(theirs, "caught_up");
    const lost = await open(edge, ref, { headers: { "last-event-id": theirs.lastEventId ?? "" } });
    await until(lost, "caught_up");
    expect(framesOf(lost)[0]).toMatchObject({
      type: "subscribed",
      recovered: false,
      reason: "cursor_invalid",
    });
  });
});

describe("[SSE5] what cannot be streamed is a refusal, not a stream", () => {
  test.each([
    ["an unknown run", "/v1/sessions/SES/runs/run_none/events", {}, 404, "not_found"],
    [
      "a foreign session",
      "/v1/sessions/SES/events",
      { authorization: "Bearer dev.other.eve" },
      404,
      "not_found",
    ],
    ["no token", "/v1/sessions/SES/events", { authorization: "" }, 401, "unauthenticated"],
    ["no cursor", "/v1/sessions/SES/events?cursor=x", {}, 422, "invalid"],
    ["a wrong Last-Event-ID", "/v1/sessions/SES/events", { "last-event-id": "x" }, 422, "invalid"],
    ["another beginning", "/v1/sessions/SES/events?from=middle", {}, 422, "invalid"],
    ["an id that is none", "/v1/sessions/a.b/events", {}, 422, "invalid"],
  ] as const)("[C30] %s", async (_name, path, headers, status, code) => {
    const session = await stage.session(edge);
    const url = `http://127.0.0.1:${edge.port}${path.replace("SES", session)}`;
    const answer = await EventStreamClient.open(url, { ...AUTH, ...headers });
    expect(answer.status).toBe(status);
    expect(answer.response.headers["content-type"]).toBe("application/problem+json");
    await answer.end();
    expect(JSON.parse(answer.rest)).toMatchObject({ code });
  });

  test("[LIFE4] more than the node's connections", async () => {
    const small = await stage.edge({ maxConnections: 2 });
    const session = await stage.session(edge);
    const held = await Promise.all([open(small, { session }), open(small, { session })]);
    await Promise.all(held.map((stream) => until(stream, "caught_up")));
    const third = await open(small, { session });
    expect(third.status).toBe(503);
    expect(Number(third.response.headers["retry-after"])).toBeGreaterThan(0);
    held[0]?.close();
    await eventually(async () => (await open(small, { session })).status === 200);
  });
});

describe("[SSE6] a slow reader", () => {
  test("[INV7] [LAG2] [LAG3] is fed as it reads: every event in the end, and little kept for it", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const [slow, fast] = [await open(edge, ref), await open(edge, ref)];
    await Promise.all([until(slow, "caught_up"), until(fast, "caught_up")]);
    slow.pause();
    const before = process.memoryUsage.rss();
    const filler = "x".repeat(24 * 1024);
    // 24 MB for a reader that does not read: the kernel takes a few of them.
    for (let round = 0; round < 10; round += 1) {
      await Promise.all(range(1, 100).map(() => writer.append(note(filler))));
    }
    await eventually(() => seqsOf(fast).length === 1_001);
    expect(edge.measured.fanout.demoted).toBeGreaterThan(0);
    expect(process.memoryUsage.rss() - before).toBeLessThan(200 * 1024 * 1024);
    slow.resume();
    await eventually(() => seqsOf(slow).length === 1_001, { timeoutMs: 20_000 });
    expect(seqsOf(slow)).toEqual(range(1, 1_001));
    await eventually(() => framesOf(slow).some(({ type }) => type === "recovered"));
    await writer.append(completed);
    expect(await slow.end()).toBe("whole");
  });

  test("[LAG4] one that reads nothing for 14 s is kept: longer than uWebSockets waits by itself", async () => {
    const session = await stage.session(other);
    const { ref, writer } = await stage.run(session);
    const slow = await open(other, ref);
    await until(slow, "caught_up");
    slow.pause();
    const filler = "x".repeat(100_000);
    for (const part of range(1, 5)) {
      await Promise.all(range(1, 20).map(() => writer.append(note(`${part} ${filler}`))));
    }
    await eventually(() => other.measured.fanout.demoted > 0);
    await sleep(14_000);
    slow.resume();
    await writer.append(completed);
    expect(await slow.end()).toBe("whole");
    expect(seqsOf(slow)).toEqual(range(1, 102));
  }, 40_000);

  test("[LAG4] one that reads nothing for too long is cut off, and comes back with its place", async () => {
    const strict = await stage.edge({ limits: { connection: { stuckMs: 500 } } });
    const session = await stage.session(strict);
    const { ref, writer } = await stage.run(session);
    const slow = await open(strict, ref);
    await until(slow, "caught_up");
    slow.pause();
    const filler = "x".repeat(100_000);
    for (let i = 0; i < 200; i += 1) await writer.append(note(filler));
    await eventually(() => strict.measured.connections.taken === 0, { timeoutMs: 20_000 });
    slow.resume();
    expect(await slow.end()).toBe("cut");
    const again = await open(edge, ref, { headers: { "last-event-id": slow.lastEventId ?? "" } });
    await eventually(() => seqsOf(again).at(-1) === 201);
    expect([...seqsOf(slow), ...seqsOf(again)]).toEqual(range(1, 201));
  });
});

describe("[SSE7] an end that is no success is told", () => {
  test("[C22] [LIFE3] a node that drains says so, and when to come back", async () => {
    const leaving = await stage.edge({ drainMs: 1_000 });
    const session = await stage.session(leaving);
    const stream = await open(leaving, { session });
    await until(stream, "caught_up");
    const drained = leaving.drain();
    expect(await stream.end()).toBe("whole");
    const goaway = framesOf(stream).find(({ type }) => type === "goaway");
    expect(goaway).toMatchObject({ reason: "drain" });
    // It was ended at its time: an EventSource has to wait no longer.
    expect(stream.retryMs).toBeLessThan(500);
    await drained;
    await expect(open(leaving, { session })).rejects.toThrow("ECONNREFUSED");
  });

  test("[LIFE7] asked for over a connection that was kept alive, once the node does not listen: cut off, not refused for good", async () => {
    const leaving = await stage.edge({ drainMs: 1_000 });
    const session = await stage.session(leaving);
    await stage.connected(leaving); // it does not heed the goaway, and so holds up the end
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const ask = (path: string, accept: string): Promise<number | string> =>
      new Promise((resolve) => {
        const headers = { authorization: "Bearer dev.acme.ann", accept };
        const asked = get({ agent, port: leaving.port, path, headers }, (response) => {
          response.resume();
          response.on("end", () => resolve(response.statusCode ?? 0));
        });
        asked.on("error", (error) => resolve(error.message));
      });
    expect(await ask("/v1/sessions", "*/*")).toBe(200);
    const drained = leaving.drain();
    await eventually(() => leaving.readiness().checks["edge"] === "draining");
    const path = `/v1/sessions/${session}/events`;
    expect(await ask(path, "text/event-stream")).toMatch(/socket hang up|ECONNRESET/);
    agent.destroy();
    await drained;
  });

  test("[AUTH5] who has no part in the session any more", async () => {
    const watchful = await stage.edge({ limits: { connection: { membershipMs: 200 } } });
    const api = new Api(watchful);
    const session = await stage.session(watchful);
    await api.post(`/v1/sessions/${session}/members`, { user: "bob", role: "viewer" });
    const stream = await open(
      watchful,
      { session },
      { headers: { authorization: "Bearer dev.acme.bob" } },
    );
    await until(stream, "caught_up");
    await api.post(`/v1/sessions/${session}/members`, { user: "bob", role: null });
    await stream.end();
    expect(framesOf(stream).at(-1)).toMatchObject({ type: "unsubscribed", reason: "membership" });
  });

  test("[LIFE3] a stream that has not begun when its node goes is cut off, so that an EventSource asks another", async () => {
    const leaving = await stage.edge();
    const session = await stage.session(edge);
    await stage.nats.pause();
    const asked = open(leaving, { session }).catch((error: unknown) => error);
    await eventually(() => leaving.measured.connections.taken === 1);
    const drained = leaving.drain();
    const outcome = await asked;
    stage.nats.resume();
    expect(outcome).toMatchObject({ code: "ECONNRESET" });
    await drained;
    expect(leaving.measured.connections.taken).toBe(0);
  });

  test("a client that goes leaves nothing behind", async () => {
    const own = await stage.edge();
    const session = await stage.session(own);
    for (let round = 0; round < 5; round += 1) {
      const opened = await Promise.all(Array.from({ length: 20 }, () => open(own, { session })));
      opened.forEach((stream) => stream.close());
    }
    await eventually(() => own.measured.connections.taken === 0);
  });
});
