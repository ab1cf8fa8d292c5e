import { type Edge, eventually, removeDir, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import { SHARDS, startWorld, type World } from "./world.ts";

const RETENTION_MS = 3_000;
/** The soak run takes the numbers of the field. */
const CLIENTS = process.env["SOAK"] ? 5_000 : 600;
const RUNS = 50;

let folder: string;
let recording: string;

beforeAll(() => {
  folder = tempDir("limits");
  recording = join(folder, "stream.jsonl");
  const chunk = (content: string): string =>
    JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  writeFileSync(recording, Array.from({ length: 2_000 }, (_, i) => chunk(` w${i}`)).join("\n"));
});
afterAll(() => removeDir(folder));

describe("a run outlives its job's retention", () => {
  let world: World;
  let edge: Edge;
  beforeAll(async () => {
    const env = {
      TL_EVENTS_MAX_AGE_MS: `${RETENTION_MS}`,
      TL_DEADLINE_MS: `${RETENTION_MS * 2}`,
      TL_ALLOW_SHORT_RETENTION: "1",
    };
    world = await startWorld(env);
    edge = await world.edge();
    await world.runtime({ allowedRoots: [folder], ackWaitMs: 1_000 });
    await world.runtime({ allowedRoots: [folder], ackWaitMs: 1_000 });
  });
  afterAll(() => world.dispose());

  test("[INV3] [INV4] it fails by its deadline, and no second writer gets in", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    const session = await client.createSession();
    const run = await client.start(session, "replay", { file: recording, speed: 1 }, "start_1");
    await client.subscribe(session, run);
    const queued = await client.frame((f) => f.run_id === run && f.type === "run.queued");
    const at = Number(String(queued.cursor).split("-")[1]);
    await eventually(
      async () =>
        (await world.broker.events.at({ tenant: "acme", session, run }, at)) === undefined,
      { what: "the job to expire" },
    );
    // The start comes again now that its job is gone: the same run, and no new one beside it.
    const again = await client.ask({
      type: "run.start",
      id: "start_1",
      session_id: session,
      payload: { agent: "replay", input: { file: recording, speed: 1 } },
    });
    expect(again).toMatchObject({ type: "command.accepted", run_id: run, duplicate: true });
    const end = await client.terminal(run);
    expect(end).toMatchObject({ type: "run.failed", payload: { code: "deadline" } });
    const events = client.events(run);
    expect(events.map((f) => f.seq)).toEqual(events.map((_, i) => i + 1));
    expect(events.filter((f) => f.type === "run.started").length).toBe(1);
    expect(events.filter((f) => f.type === "run.resumed")).toEqual([]);
    client.close();
  });
});

describe("many clients", () => {
  let world: World;
  let edge: Edge;
  beforeAll(async () => {
    world = await startWorld();
    edge = await world.edge();
    await world.runtime({ allowedRoots: [folder], ackWaitMs: 10_000 });
  });
  afterAll(() => world.dispose());

  async function consumers(): Promise<number> {
    let count = 0;
    for await (const stream of world.broker.jsm.streams.list())
      count += stream.state.consumer_count;
    return count;
  }

  test("the same command id in two sessions: two runs", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    const [one, two] = [await client.createSession(), await client.createSession()];
    const input = { file: recording, speed: 100 };
    const first = await client.start(one, "replay", input, "same_id");
    const second = await client.start(two, "replay", input, "same_id");
    expect(first).not.toBe(second);
    client.close();
  });

  test(`[C11] ${CLIENTS} clients on ${RUNS} runs: consumers as before, and every client sees its run whole`, async () => {
    const starter = await RawClient.connect(edge.connectUrl);
    const session = await starter.createSession();
    const probe = await starter.start(session, "replay", { file: recording, speed: 100 });
    await starter.subscribe(session, probe);
    await starter.terminal(probe);
    const before = await consumers();
    // Two agents and a sweep per shard.
    expect(before).toBe((2 + 1) * SHARDS);
    const runs: string[] = [];
    for (let i = 0; i < RUNS; i += 1) {
      runs.push(await starter.start(session, "replay", { file: recording, speed: 4 }));
    }
    const clients: RawClient[] = [];
    for (let i = 0; i < CLIENTS; i += 50) {
      clients.push(
        ...(await Promise.all(
          Array.from({ length: 50 }, async (_, n) => {
            const client = await RawClient.connect(edge.connectUrl);
            await client.subscribe(session, runs[(i + n) % RUNS], { deltas: false });
            return client;
          }),
        )),
      );
    }
    expect(await consumers()).toBe(before);
    await Promise.all(
      clients.map(async (client, i) => {
        const run = runs[i % RUNS] ?? "";
        await client.terminal(run, 200_000);
        const seqs = client.events(run).map((f) => f.seq);
        expect(seqs).toEqual(seqs.map((_, k) => k + 1));
      }),
    );
    expect(await consumers()).toBe(before);
    for (const client of clients) client.close();
    starter.close();
  }, 300_000);
});
