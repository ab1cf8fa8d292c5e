/** What a client finds when it comes back. Raw WebSockets: an SDK would hide a repetition. */
import { createClient } from "@throughline/client/node";
import { type DurableEvent, parseCursor } from "@throughline/protocol";
import { type Edge, eventually, type Service, tcpProxy } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { BY_HAND, writerOf } from "./hand-worker.ts";
import { type Frame, RawClient } from "./raw-client.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let one: Edge;
let two: Edge;
const clients: RawClient[] = [];

beforeAll(async () => {
  world = await startWorld();
  [one, two] = await Promise.all([world.edge(), world.edge()]);
});
afterEach(() => {
  for (const client of clients.splice(0)) client.terminate();
});
afterAll(() => world.dispose());

async function connect(edge: Edge): Promise<RawClient> {
  const client = await RawClient.connect(edge.connectUrl);
  clients.push(client);
  return client;
}

/** Comes back at an edge with a cursor; resolves when what was stored has been replayed. */
async function comeBack(
  edge: Edge,
  session: string,
  run: string | undefined,
  cursor: string,
): Promise<RawClient> {
  const client = await connect(edge);
  const answer = await client.subscribe(session, run, { cursor });
  expect(answer).toMatchObject({ type: "subscribed", recovered: true });
  await client.frame((frame) => frame.type === "caught_up");
  return client;
}

const cursorOf = (frame: Frame | undefined): string => {
  if (frame?.cursor === undefined) throw new Error("a frame without a cursor");
  return frame.cursor;
};
const seqs = (frames: readonly Frame[]): (number | undefined)[] => frames.map(({ seq }) => seq);

describe("[C01] the connection drops before the first event", () => {
  test("of a session: the cursor came with `subscribed`, and the one event that is published comes once", async () => {
    const first = await connect(one);
    const session = await first.createSession();
    const cursor = cursorOf(await first.subscribe(session));
    first.terminate();
    const starter = await connect(two);
    const run = await starter.start(session, BY_HAND, null);
    for (const edge of [two, one]) {
      const client = await comeBack(edge, session, undefined, cursor);
      expect(client.events().map((event) => [event.run_id, event.seq])).toEqual([[run, 1]]);
    }
  });

  test("of a run: likewise from `latest`", async () => {
    const first = await connect(one);
    const session = await first.createSession();
    const run = await first.start(session, BY_HAND, null);
    const cursor = cursorOf(await first.subscribe(session, run, { from: "latest" }));
    first.terminate();
    const writer = await writerOf(world.broker, session, run);
    await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
    for (const edge of [two, one])
      expect(seqs((await comeBack(edge, session, run, cursor)).events(run))).toEqual([2]);
    await writer.close();
  });
});

describe("[C02] a client drops and resumes twice with nothing published between", () => {
  test.each(["run", "session"] as const)(
    "of a %s: the second replay holds no event",
    async (kind) => {
      const first = await connect(one);
      const session = await first.createSession();
      const run = await first.start(session, BY_HAND, null);
      const writer = await writerOf(world.broker, session, run);
      await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
      const scope = kind === "run" ? run : undefined;
      const second = await connect(two);
      await second.subscribe(session, scope);
      const { cursor } = await second.frame((frame) => frame.seq === 1);
      second.terminate();

      const third = await comeBack(one, session, scope, cursor ?? "");
      expect(seqs(third.events())).toEqual([2]);
      const end = cursorOf(third.events()[0]);
      third.terminate();
      for (const edge of [one, two, one]) {
        const again = await comeBack(edge, session, scope, end);
        expect(again.events()).toEqual([]);
        again.terminate();
      }
      await writer.close();
    },
  );
});

describe("[C05] a run of 10,001 stored events", () => {
  test(
    "resumed at the last but one: one event, found by its position",
    { timeout: 60_000 },
    async () => {
      const first = await connect(one);
      const session = await first.createSession();
      const run = await first.start(session, BY_HAND, null);
      const writer = await writerOf(world.broker, session, run);
      const stored = [];
      for (let n = 2; n <= 10_001; n += 1)
        stored.push(writer.append({ type: "custom", payload: { name: "n", value: n } }));
      await Promise.all(stored);
      await writer.close();
      const whole = await comeBackFromStart(two, session, run, 10_001);
      const cursor = cursorOf(whole.events(run).at(-2));
      expect(parseCursor(cursor)?.seq).toBe(10_000);
      const size = whole.events(run).reduce((sum, event) => sum + JSON.stringify(event).length, 0);
      whole.terminate();

      // An edge that has never seen the run, so that nothing of it is in memory.
      const cold = await world.edge();
      const before = await bytesFromNats();
      const client = await comeBack(cold, session, run, cursor);
      expect(seqs(client.events(run))).toEqual([10_001]);
      const read = (await bytesFromNats()) - before;
      expect(read).toBeGreaterThan(0);
      expect(read).toBeLessThan(size / 10);
      await cold.dispose();
    },
  );
});

async function comeBackFromStart(
  edge: Edge,
  session: string,
  run: string,
  count: number,
): Promise<RawClient> {
  const client = await connect(edge);
  await client.subscribe(session, run);
  await eventually(() => client.events(run).length === count, { timeoutMs: 30_000 });
  return client;
}

/** All that NATS has sent to anybody. */
async function bytesFromNats(): Promise<number> {
  const varz = (await world.nats.monitor("/varz")) as { out_bytes: number };
  return varz.out_bytes;
}

describe("[C17] a client is cut off while its run finishes", () => {
  test("it gets the rest and the terminal event, at the node where it was and at another", async () => {
    const proxy = await tcpProxy({ port: one.port });
    const client = createClient({
      url: `http://${proxy.address}`,
      token: "dev.acme.ann",
      reconnect: { baseMs: 20, capMs: 200 },
    });
    const session = await client.createSession();
    const starter = await connect(two);
    const run = await starter.start(session, BY_HAND, null);
    const writer = await writerOf(world.broker, session, run);
    const handle = client.follow({ session, run });
    const given: DurableEvent[] = [];
    const reading = (async () => {
      for await (const item of handle) if ("seq" in item) given.push(item);
    })();
    await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
    await eventually(() => given.length === 2);
    const cursor = handle.cursor ?? "";

    proxy.refuse();
    proxy.cut();
    for (let n = 0; n < 500; n += 1)
      void writer.append({ type: "custom", payload: { name: "n", value: n } });
    await writer.append({ type: "run.completed", payload: { output: "done" } });
    expect(given.length).toBe(2);
    await proxy.accept();

    expect(await handle.done).toMatchObject({ status: "completed", output: "done" });
    await reading;
    expect(given.map(({ event_id }) => event_id)).toEqual(
      (await world.log(session, run)).map(({ event_id }) => event_id),
    );
    client.close();
    proxy.close();

    const elsewhere = await connect(two);
    await elsewhere.subscribe(session, run, { cursor });
    await elsewhere.terminal(run);
    expect(seqs(elsewhere.events(run))).toEqual(Array.from({ length: 501 }, (_, n) => n + 3));
  });
});

describe("[C22] whatever the reason for which a stream is closed, the client can tell", () => {
  test("the run has ended: the terminal event, then `unsubscribed`; the connection goes on", async () => {
    const client = await connect(one);
    const session = await client.createSession();
    const run = await client.start(session, BY_HAND, null);
    await client.subscribe(session, run);
    const writer = await writerOf(world.broker, session, run);
    await writer.append({
      type: "run.failed",
      payload: { code: "agent_error", message: "no", retryable: false },
    });
    const end = await client.frame((frame) => frame.type === "unsubscribed");
    expect(end).toMatchObject({ reason: "run_ended" });
    expect(client.frames.indexOf(end)).toBeGreaterThan(
      client.frames.indexOf(await client.terminal(run)),
    );
    expect(await client.ask({ type: "heartbeat", payload: { ts: 1 } })).toMatchObject({
      type: "heartbeat.ack",
    });
  });

  test("frames that cannot be read, again and again: an error each, then 4400", async () => {
    const client = await connect(one);
    for (let n = 0; n < 50; n += 1) client.sendText("{");
    expect(await eventually(() => client.closed)).toMatchObject({ code: 4400 });
    expect(client.frames.filter(({ type }) => type === "error").length).toBeGreaterThan(1);
  });

  test("a frame that is too big: 1009", async () => {
    const client = await connect(one);
    client.sendText(`"${"x".repeat(600 * 1024)}"`);
    expect(await eventually(() => client.closed)).toMatchObject({ code: 1009 });
  });

  test("the node is told to stop: goaway, then 1012, and the SDK's clients go on elsewhere without a loss", async () => {
    const leaving = await world.edge({ env: { TL_DRAIN_MS: "500" } });
    const client = createClient({
      urls: [leaving.url, two.url],
      token: "dev.acme.ann",
      reconnect: { baseMs: 20, capMs: 200 },
    });
    const session = await client.createSession();
    const run = await client.command({
      type: "run.start",
      session_id: session,
      payload: { agent: BY_HAND, input: null },
    });
    const handle = client.follow({ session, run: run.run_id ?? "" });
    const raw = await connect(leaving);
    const writer = await writerOf(world.broker, session, run.run_id ?? "");
    const given: DurableEvent[] = [];
    const reading = (async () => {
      for await (const item of handle) if ("seq" in item) given.push(item);
    })();
    await eventually(() => given.length === 1);
    const stopped: Promise<unknown> = leaving.stop();
    let writing = true;
    void stopped.then(() => (writing = false));
    // Without a pause, so that some are written while the client is on its way.
    const burst = Array.from({ length: 50 }, (_, value) => ({ name: "n", value }));
    while (writing)
      await Promise.all(burst.map((payload) => writer.append({ type: "custom", payload })));
    await writer.append({ type: "run.completed", payload: {} });
    expect(await eventually(() => raw.closed)).toMatchObject({ code: 1012 });
    expect(raw.frames.find(({ type }) => type === "goaway")).toMatchObject({
      reconnect_after_ms: expect.any(Number),
    });
    await reading;
    expect(given.map(({ event_id }) => event_id)).toEqual(
      (await world.log(session, run.run_id ?? "")).map(({ event_id }) => event_id),
    );
    client.close();
  });

  test("the node is killed: no close frame, which is the advice to come back with the cursor", async () => {
    const doomed: Service & Edge = await world.edge();
    const client = await connect(doomed);
    await doomed.kill();
    expect(await eventually(() => client.closed)).toMatchObject({ code: 1006 });
  });
});
