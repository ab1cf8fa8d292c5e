/** Pages that wait for what comes next. */
import { eventually } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { Api } from "./api.ts";
import { completed, type Frame, note, range, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;
let api: Api;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
  api = new Api(edge);
});
afterAll(() => stage.close());

const events = (body: Record<string, unknown>): Frame[] => body["events"] as Frame[];

describe("[POLL1] a page with wait_ms", () => {
  test("waits for the first event, on the node's hub, and has what came", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const path = `/v1/sessions/${session}/runs/${ref.run}/events`;
    const first = await api.get(`${path}?wait_ms=30000`);
    expect(events(first.body).map(({ seq }) => seq)).toEqual([1]);
    const cursor = String(first.body["cursor"]);
    const readsBefore = edge.measured.fanout.logReads;
    const waiting = range(1, 20).map(() => api.get(`${path}?cursor=${cursor}&wait_ms=30000`));
    const whole = api.get(`/v1/sessions/${session}/events?cursor=${cursor}&wait_ms=30000`);
    await eventually(() => edge.measured.connections.taken === 21);
    await writer.append(note("now"));
    for (const { body } of await Promise.all([...waiting, whole])) {
      expect(events(body).map(({ seq }) => seq)).toEqual([2]);
      expect(body["more"]).toBe(false);
    }
    expect(edge.measured.fanout.logReads - readsBefore).toBeLessThan(5);
    expect(edge.measured.connections.taken).toBe(0);
  });

  test("answers in vain with the same cursor, and at once where the run has ended", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const path = `/v1/sessions/${session}/runs/${ref.run}/events`;
    const { body } = await api.get(path);
    const nothing = await api.get(`${path}?cursor=${String(body["cursor"])}&wait_ms=100`);
    expect(nothing.body).toMatchObject({ events: [], cursor: body["cursor"], more: false });
    expect(nothing.body["ended"]).toBeUndefined();
    await writer.append(completed);
    const end = await api.get(`${path}?cursor=${String(body["cursor"])}&wait_ms=30000`);
    expect(end.body).toMatchObject({ ended: true });
    const over = await api.get(`${path}?cursor=${String(end.body["cursor"])}&wait_ms=30000`);
    expect(over.body).toMatchObject({ events: [], ended: true });
  });

  test("following a run by polls alone, from node to node, gives the log", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const path = `/v1/sessions/${session}/runs/${ref.run}/events`;
    const written = (async () => {
      for (let i = 2; i <= 40; i += 1) await writer.append(note(i));
      await writer.append(completed);
    })();
    const seen: (number | undefined)[] = [];
    let cursor = "";
    for (let turn = 0, ended = false; !ended; turn += 1) {
      const node = new Api(turn % 2 === 0 ? edge : other);
      const at = cursor === "" ? "" : `cursor=${cursor}&`;
      const { body } = await node.get(`${path}?${at}wait_ms=5000&limit=7`);
      seen.push(...events(body).map(({ seq }) => seq));
      cursor = String(body["cursor"]);
      ended = body["ended"] === true && body["more"] === false;
    }
    await written;
    expect(seen).toEqual(range(1, 41));
  });

  test.each(["-1", "1.5", "x", "99999999"])("wait_ms=%s is invalid", async (wait) => {
    const session = await stage.session(edge);
    const { status } = await api.get(`/v1/sessions/${session}/events?wait_ms=${wait}`);
    expect(status).toBe(422);
  });
});

describe("[POLL2] those who wait", () => {
  test("are connections, not requests on their way; who goes is forgotten", async () => {
    const small = await stage.edge({ maxConnections: 3 });
    const session = await stage.session(edge);
    const url = `http://127.0.0.1:${small.port}/v1/sessions/${session}/events?wait_ms=30000`;
    const abort = new AbortController();
    const headers = { authorization: "Bearer dev.acme.ann" };
    const held = range(1, 3).map(() => fetch(url, { headers, signal: abort.signal }));
    const gone = Promise.allSettled(held);
    await eventually(() => small.measured.connections.taken === 3);
    const refused = await fetch(url, { headers });
    expect([refused.status, Number(refused.headers.get("retry-after"))]).toEqual([503, 5]);
    abort.abort();
    await gone;
    await eventually(() => small.measured.connections.taken === 0);
  });

  test("[LIFE3] are answered when their node goes", async () => {
    const leaving = await stage.edge();
    const session = await stage.session(edge);
    const asked = new Api(leaving).get(`/v1/sessions/${session}/events?wait_ms=30000`);
    await eventually(() => leaving.measured.connections.taken === 1);
    const drained = leaving.drain();
    expect(await asked).toMatchObject({ status: 200, body: { events: [] } });
    await drained;
  });
});
