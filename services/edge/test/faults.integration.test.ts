import { eventually, EventStreamClient } from "@throughline/testkit";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Api } from "./api.ts";
import { completed, freshId, note, publishRaw, range, Stage } from "./stage.ts";

let stage: Stage;

beforeEach(async () => {
  stage = await Stage.open();
});
afterEach(() => stage.close());

describe("a slow reader", () => {
  test("[LAG2] [LAG3] [INV7] [C09] [C03] it stops reading: bounded, others go on, and it gets every event when it reads again", async () => {
    const edge = await stage.edge();
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const slow = await stage.connected(edge);
    const fast = await stage.connected(edge);
    for (const client of [slow, fast]) {
      await client.subscribe(ref);
      await client.frame("caught_up");
    }
    slow.ws.pause();
    const before = process.memoryUsage().rss;
    const pad = "x".repeat(20_000);
    for (let i = 0; i < 2_000; i += 1) {
      void writer.append(note(pad));
      await writer.ready();
    }
    await writer.flush();
    await fast.until(() => fast.seqs().length === 2_001, "all events at the fast one");
    expect(edge.measured.fanout.demoted).toBe(1);
    // 40 MB went by; the slow one's share stays within its limits (the rest of it is this test's own).
    expect(edge.measured.budget.total).toBeLessThan(64 * 1024 * 1024);
    expect(process.memoryUsage().rss - before).toBeLessThan(400 * 1024 * 1024);
    expect(fast.frames.some((f) => f.type === "lagging")).toBe(false);
    slow.ws.resume();
    await writer.append(completed);
    await slow.frame("unsubscribed");
    expect(slow.seqs()).toEqual(range(1, 2_002));
    const control = slow.frames.filter((f) => f.seq === undefined).map((f) => f.type);
    expect(control).toContain("lagging");
  }, 60_000);

  test("[LAG4] one that makes no progress is closed, and comes back with its cursor", async () => {
    const edge = await stage.edge({ limits: { connection: { stuckMs: 500 } } });
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const slow = await stage.connected(edge);
    await slow.subscribe(ref);
    await slow.frame("caught_up");
    slow.ws.pause();
    const pad = "x".repeat(100_000);
    for (let i = 0; i < 150; i += 1) {
      void writer.append(note(pad));
      await writer.ready();
    }
    await writer.flush();
    await eventually(() => edge.measured.connection.closed.get(4410) === 1, { timeoutMs: 20_000 });
    slow.ws.resume();
    expect((await slow.untilClosed()).code).toBe(4410);
    const back = await stage.connected(edge);
    expect(await back.subscribe(ref, { cursor: slow.cursor })).toMatchObject({ recovered: true });
    await back.frame("caught_up");
    expect([...slow.seqs(), ...back.seqs()]).toEqual(range(1, 151));
  }, 60_000);

  test("[ATT3] [C03] a backlog of 50 MB is read page by page: bounded memory, frames within the limit", async () => {
    const edge = await stage.edge({ fanoutBytes: 8 * 1024 * 1024 });
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const pad = "x".repeat(100_000);
    for (let i = 0; i < 500; i += 1) {
      void writer.append(note(pad));
      await writer.ready();
    }
    await writer.flush();
    const client = await stage.connected(edge);
    const sizes: number[] = [];
    client.ws.on("message", (data: Buffer) => sizes.push(data.byteLength));
    let most = 0;
    const sampler = setInterval(() => {
      most = Math.max(most, edge.measured.budget.total);
    }, 5);
    await client.subscribe(ref);
    // Reads a little, rests a little.
    for (let rest = 0; rest < 20; rest += 1) {
      client.ws.pause();
      await new Promise((resolve) => setImmediate(resolve));
      client.ws.resume();
      await client.until(() => client.events.length >= rest * 20 || undefined, "some more");
    }
    await client.frame("caught_up");
    clearInterval(sampler);
    expect(client.seqs()).toEqual(range(1, 501));
    expect(Math.max(...sizes)).toBeLessThan(512 * 1024);
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(10 * 1024 * 1024);
  }, 60_000);
});

describe("NATS away", () => {
  test("[EXEC4] [LIFE5] commands are refused with a time to retry, connections stay, and all go on when it is back", async () => {
    const edge = await stage.edge();
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const clients = await Promise.all([stage.connected(edge), stage.connected(edge)]);
    const [a, b] = clients;
    if (!a || !b) throw new Error("two clients are wanted");
    await a.subscribe(ref);
    await b.subscribe({ session });
    for (const client of clients) await client.frame("caught_up");
    await writer.append(note(1));
    await stage.nats.kill();
    await eventually(() => !edge.measured.isNatsUp());
    expect(edge.readiness().ok).toBe(true);
    const id = freshId();
    const start = {
      type: "run.start",
      id,
      session_id: session,
      payload: { agent: "echo", input: 1 },
    };
    expect(await a.ask(start)).toMatchObject({
      type: "command.rejected",
      code: "unavailable",
      retry_after_ms: 1_000,
    });
    const c = await stage.connected(edge);
    expect(await c.subscribe({ session: "ses_other" })).toMatchObject({
      type: "error",
      code: "unavailable",
    });
    const page = await fetch(`http://127.0.0.1:${edge.port}/v1/sessions/${session}/events`, {
      headers: { authorization: "Bearer dev.acme.ann" },
    });
    expect([page.status, page.headers.get("retry-after")]).toEqual([503, "1"]);
    await eventually(() => !edge.readiness().ok, { timeoutMs: 15_000 });
    const rest = [writer.append(note(2)), writer.append(note(3)), writer.append(completed)];
    await stage.nats.restart();
    await Promise.all(rest);
    await eventually(() => edge.readiness().ok, { timeoutMs: 15_000 });
    await a.frame("unsubscribed");
    await b.frame("run.completed");
    for (const client of clients) {
      expect(client.seqs()).toEqual(range(1, 5));
      expect(client.closed).toBeUndefined();
    }
    expect(await a.ask(start)).toMatchObject({ type: "command.accepted" });
  }, 60_000);

  test("[EXEC4] [HTTP1] what is asked over HTTP, and a session begun from its state, is `unavailable`", async () => {
    const edge = await stage.edge();
    const session = await stage.session(edge);
    const client = await stage.connected(edge);
    await client.subscribe({ session }, { from: "snapshot" });
    const { subscription_id } = await client.frame("caught_up");
    await stage.nats.stop();
    const api = new Api(edge);
    const paths = [
      "/agents",
      "/sessions",
      `/sessions/${session}`,
      `/sessions/${session}/artifacts/a`,
    ];
    const asked = await Promise.all(paths.map((path) => api.get(`/v1${path}`)));
    expect(asked.map(({ status, body }) => [status, body.code])).toEqual(
      paths.map(() => [503, "unavailable"]),
    );
    expect(asked[0]?.headers.get("retry-after")).toBe("1");
    await client.ask({ type: "unsubscribe", payload: { subscription_id } });
    expect(await client.subscribe({ session }, { from: "snapshot" })).toMatchObject({
      type: "error",
      code: "unavailable",
    });
    expect(stage.logged.filter((line) => "err" in line)).toEqual([]);
  });

  test("[EXEC4] [SSE5] [POLL1] streams stay and go on; what is asked for meanwhile is `unavailable`", async () => {
    const edge = await stage.edge();
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const events = `http://127.0.0.1:${edge.port}/v1/sessions/${session}/runs/${ref.run}/events`;
    const headers = { authorization: "Bearer dev.acme.ann" };
    const stream = await EventStreamClient.open(events, headers);
    await stream.message(({ data }) => data?.includes('"caught_up"') === true);
    const poll = fetch(`${events}?wait_ms=30000&cursor=${stream.lastEventId}`, { headers });
    await eventually(() => edge.measured.connections.taken === 2);
    await stage.nats.stop();
    // What the node holds it still streams; what it would have to ask NATS for is refused.
    const unknown = events.replace(ref.run, "run_other");
    const refused = await EventStreamClient.open(unknown, headers);
    expect([refused.status, refused.response.headers["retry-after"]]).toEqual([503, "1"]);
    await refused.end();
    expect(JSON.parse(refused.rest)).toMatchObject({ code: "unavailable" });
    const page = await fetch(`${events}?wait_ms=30000`, { headers });
    expect([page.status, page.headers.get("retry-after")]).toEqual([503, "1"]);
    await stage.nats.restart();
    await writer.append(note("after"));
    await stream.message(({ data }) => data?.includes('"after"') === true);
    expect(stream.ended).toBe(undefined);
    // It waited all the while, or was told to ask again: a page of nothing would look like an answer.
    const answer = await poll;
    if (answer.status === 200) expect(await answer.text()).toContain('"after"');
    else expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
    stream.close();
  }, 60_000);

  test("[RES8] [ATT1] a client that was catching up goes on where it was", async () => {
    const edge = await stage.edge({
      limits: {
        fanout: { pageBytes: 4_000, feedBytes: 4_000, ring: { bytes: 4_000, messages: 4 } },
      },
    });
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    for (let i = 0; i < 3_000; i += 1) void writer.append(note("x".repeat(300)));
    await writer.flush();
    const client = await stage.connected(edge);
    await client.subscribe(ref);
    await client.until(() => client.events.length > 50 || undefined, "some events");
    await stage.nats.kill();
    const had = client.events.length;
    await stage.nats.restart();
    await client.frame("caught_up");
    expect(had).toBeLessThan(3_001);
    expect(client.seqs()).toEqual(range(1, 3_001));
  }, 60_000);
});

describe("letting go", () => {
  test("[LIFE3] [C13] [C22] clients are told when to come back, commands are taken meanwhile, then 1012", async () => {
    const [edge, other] = [
      // Time enough, also on a slow machine, for what is to be done before the first close.
      await stage.edge({ drainMs: 500, drainDelayMs: 3_000 }),
      await stage.edge(),
    ];
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const clients = await Promise.all(range(1, 50).map(() => stage.connected(edge)));
    for (const client of clients) {
      await client.subscribe(ref);
      await client.frame("caught_up");
    }
    // Written all the while, each event when somebody has seen the one before it.
    let written = 1;
    let isWriting = true;
    const reader = await stage.connected(other);
    await reader.subscribe(ref);
    const writing = (async () => {
      for (; isWriting; written += 1) {
        await writer.append(note(written));
        await reader.until(() => reader.events[written], "what was written");
      }
      await writer.append(completed);
    })();
    const drained = edge.drain();
    expect(edge.readiness()).toMatchObject({ ok: false, checks: { edge: "leaving" } });
    // Load balancers have not heard of it yet: a new connection is still taken.
    await stage.connected(edge);
    const [first] = clients;
    if (!first) throw new Error("there are clients");
    const steer = {
      type: "run.continue",
      session_id: session,
      run_id: ref.run,
      payload: { content: 1 },
    };
    expect(await first.ask(steer)).toMatchObject({ type: "command.accepted" });
    await drained;
    isWriting = false;
    await writing;
    for (const client of clients) {
      expect(await client.untilClosed()).toMatchObject({ code: 1012 });
      expect(client.frames.find((f) => f.type === "goaway")).toMatchObject({ reason: "drain" });
      const back = await stage.connected(other);
      await back.subscribe(ref, { cursor: client.cursor });
      await back.frame("unsubscribed");
      expect(client.seqs().length).toBeLessThan(written + 1);
      expect([...client.seqs(), ...back.seqs()]).toEqual(range(1, written + 1));
    }
    const refused = stage.client(edge);
    expect((await refused.untilClosed()).code).toBe(1006);
    await eventually(() => edge.measured.connections.taken === 0);
  }, 60_000);

  test("[HUB2] a log that contradicts itself closes its clients with 1013, and the node serves the others", async () => {
    const edge = await stage.edge();
    const session = await stage.session(edge);
    const [bad, good] = [await stage.run(session), await stage.run(session)];
    const victim = await stage.connected(edge);
    await victim.subscribe(bad.ref);
    await victim.frame("caught_up");
    const bystander = await stage.connected(edge);
    await bystander.subscribe(good.ref);
    await bystander.frame("caught_up");
    const shard = stage.broker.shardOf(session);
    const last = await stage.broker.events.last({ kind: "run", ...bad.ref }, "leader");
    const { tenant, run } = bad.ref;
    await publishRaw(
      stage.nats,
      `tl.ev.${shard}.${tenant}.${session}.${run}.e`,
      {
        "Tl-Seq": 2,
        "Tl-Last": 3,
        "Tl-Prev": last?.streamSeq ?? 0,
        "Tl-Attempt": 1,
        "Tl-Writer": "w",
        "Tl-Epoch": last?.epoch ?? "",
      },
      '{"only":"one line"}',
    );
    expect(await victim.untilClosed()).toMatchObject({ code: 1013 });
    expect(edge.measured.fanout.faults).toBe(1);
    await good.writer.append(note(1));
    await bystander.until(() => bystander.seqs()[1], "the next event");
  });
});
