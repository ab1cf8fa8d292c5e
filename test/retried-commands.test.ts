/** Commands that come again: over another node, at the same time, with another body, after a long time. */
import { createClient } from "@throughline/client/node";
import { type Edge, eventually, tcpProxy } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { BY_HAND, writerOf } from "./hand-worker.ts";
import { RawClient } from "./raw-client.ts";
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

async function connect(connectUrl: string): Promise<RawClient> {
  const client = await RawClient.connect(connectUrl);
  clients.push(client);
  return client;
}

const start = (session: string, id: string, agent = BY_HAND, input: unknown = { n: 1 }) => ({
  type: "run.start",
  id,
  session_id: session,
  payload: { agent, input },
});

describe("[C04] the link dies after a command was sent and before its answer", () => {
  test("[INV5] sent again through another node it has one effect, and the answer says `duplicate`", async () => {
    const proxy = await tcpProxy({ port: one.port });
    const cut = await connect(`ws://${proxy.address}/v1/connect`);
    const session = await cut.createSession();
    proxy.stall("down");
    const command = start(session, "once");
    cut.send(command);
    const other = await connect(two.connectUrl);
    await other.subscribe(session);
    const queued = await other.frame((frame) => frame.type === "run.queued");
    expect(cut.frames.filter(({ id }) => id === "once")).toEqual([]);
    cut.terminate();
    expect(await other.ask(command)).toMatchObject({
      type: "command.accepted",
      run_id: queued.run_id,
      duplicate: true,
    });
    expect((await world.log(session, queued.run_id ?? "")).map(({ type }) => type)).toEqual([
      "run.queued",
    ]);
    expect(other.events().length).toBe(1);

    // The same of a command to the run: it is stored once.
    const cancel = {
      type: "run.cancel",
      id: "stop",
      session_id: session,
      run_id: queued.run_id,
      payload: {},
    };
    const again = await connect(one.connectUrl);
    expect(await again.ask(cancel)).toMatchObject({ type: "command.accepted", duplicate: false });
    expect(await other.ask(cancel)).toMatchObject({ type: "command.accepted", duplicate: true });
    proxy.close();
  });

  test("[INV5] the SDK does so by itself", async () => {
    const proxy = await tcpProxy({ port: one.port });
    const client = createClient({
      urls: [`http://${proxy.address}`, two.url],
      token: "dev.acme.ann",
      reconnect: { baseMs: 20, capMs: 200 },
    });
    const session = await client.createSession();
    const witness = await connect(two.connectUrl);
    await witness.subscribe(session);
    proxy.stall("down");
    const answer = client.command({
      type: "run.start",
      session_id: session,
      payload: { agent: BY_HAND, input: null },
    });
    const queued = await witness.frame((frame) => frame.type === "run.queued");
    proxy.refuse();
    proxy.flow();
    proxy.cut();
    expect(await answer).toMatchObject({ run_id: queued.run_id });
    expect(witness.events().length).toBe(1);
    client.close();
    proxy.close();
  });
});

describe("[C07] a start comes again", () => {
  test("after days and after the run's end, the run is the same, and no client sees seq go back", async () => {
    const client = await connect(one.connectUrl);
    const session = await client.createSession();
    const run = await client.start(session, BY_HAND, { n: 1 }, "again");
    const writer = await writerOf(world.broker, session, run);
    await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
    await writer.append({ type: "run.completed", payload: { output: 1 } });
    // No memory of the server's stands behind a start, but the run itself: time makes no difference.
    const witness = await connect(two.connectUrl);
    await witness.subscribe(session);
    for (const { connectUrl } of [one, two])
      expect(await (await connect(connectUrl)).ask(start(session, "again"))).toMatchObject({
        type: "command.accepted",
        run_id: run,
        duplicate: true,
      });
    await witness.frame((frame) => frame.type === "caught_up");
    const after = await (await connect(two.connectUrl)).start(session, BY_HAND, null);
    await witness.frame((frame) => frame.run_id === after);
    expect(witness.events(run).map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect((await world.log(session, run)).length).toBe(3);
  });

  test.each([
    ["another agent", (session: string) => start(session, "other", "another-agent")],
    ["another input", (session: string) => start(session, "other", BY_HAND, { n: 2 })],
  ])("with %s it is `idempotency_conflict`, through either node", async (_, other) => {
    const client = await connect(one.connectUrl);
    const session = await client.createSession();
    const run = await client.start(session, BY_HAND, { n: 1 }, "other");
    const witness = await connect(two.connectUrl);
    await witness.subscribe(session);
    for (const { connectUrl } of [one, two])
      expect(await (await connect(connectUrl)).ask(other(session))).toMatchObject({
        type: "command.rejected",
        code: "idempotency_conflict",
      });
    const after = await client.start(session, BY_HAND, null);
    await witness.frame((frame) => frame.run_id === after);
    expect(witness.events().map((event) => [event.run_id, event.seq])).toEqual([
      [run, 1],
      [after, 1],
    ]);
  });
});

describe("[C20] a start is retried through two nodes at once", () => {
  test("[INV5] 25 times: one run each, accepted by both, and one of the two is the duplicate", async () => {
    const [left, right] = await Promise.all([connect(one.connectUrl), connect(two.connectUrl)]);
    const session = await left.createSession();
    await left.subscribe(session);
    for (let round = 0; round < 25; round += 1) {
      const command = start(session, `round_${round}`);
      const answers = await Promise.all([left.ask(command), right.ask(command)]);
      expect(answers.map(({ type }) => type)).toEqual(["command.accepted", "command.accepted"]);
      expect(answers[0]?.run_id).toBe(answers[1]?.run_id);
      expect(answers.filter(({ duplicate }) => duplicate === true).length).toBe(1);
    }
    await eventually(() => left.events().length === 25);
    expect(new Set(left.events().map(({ run_id }) => run_id)).size).toBe(25);
    expect(left.events().every(({ type }) => type === "run.queued")).toBe(true);
  });
});
