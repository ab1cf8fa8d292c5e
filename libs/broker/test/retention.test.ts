import { randomBytes } from "node:crypto";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Broker, type BrokerOptions, openBroker } from "../src/index.ts";
import { objectReuseMs } from "../src/retention.ts";
import { freshRun } from "./harness.ts";

let nats: NatsServer;

beforeAll(async () => {
  nats = await startNats();
});
afterAll(() => nats.dispose());

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const DAY = 24 * HOUR;

const open = (over: Partial<BrokerOptions>): Promise<Broker> =>
  openBroker({ servers: [nats.url], name: "test", shards: 1, ...over });

/** How long each stream keeps what it holds, in ms; 0: for ever. */
async function ages(broker: Broker): Promise<Record<string, number>> {
  const infos = await broker.jsm.streams.list().next();
  return Object.fromEntries(infos.map(({ config }) => [config.name, config.max_age / 1e6]));
}

test("[KEP5] history is kept for 30 days, objects an hour longer; only who may adjusts what is there", async () => {
  const first = await open({});
  const usual = {
    TL_EV_0: 7 * DAY,
    TL_CM_0: 7 * DAY,
    TL_SN_0: 30 * DAY,
    TL_OB_0: 30 * DAY + HOUR,
    KV_TL_RUNS: 30 * DAY,
    KV_TL_SESSIONS: 0,
    KV_TL_USER_SESSIONS: 0,
  };
  expect(await ages(first)).toMatchObject(usual);
  const other = await open({ historyMaxAgeMs: DAY });
  expect(await ages(first)).toMatchObject(usual);
  const events = 2 * DAY;
  const adjusting = await Promise.all(
    Array.from({ length: 5 }, () =>
      open({ historyMaxAgeMs: DAY, eventsMaxAgeMs: events, adjust: true }),
    ),
  );
  // Never shorter than events: a run's large values would be gone before the run.
  expect(await ages(first)).toMatchObject({
    TL_EV_0: events,
    TL_SN_0: events,
    TL_OB_0: events + HOUR,
    KV_TL_RUNS: events,
    KV_TL_SESSIONS: 0,
    KV_TL_USER_SESSIONS: 0,
  });
  await Promise.all([first, other, ...adjusting].map((broker) => broker.close()));
});

test("[OBJ9] [OBJ3] an object lives for its time after its last put, then it goes, and what was abandoned too", async () => {
  expect(objectReuseMs(30 * DAY)).toBe(HOUR);
  expect(objectReuseMs(2 * SECOND)).toBe(200);
  const times = { historyMaxAgeMs: 2 * SECOND, eventsMaxAgeMs: SECOND };
  const broker = await open({ ...times, adjust: true });
  const ref = freshRun();
  const bytes = randomBytes(600 * 1024);
  const put = async (): Promise<number> => {
    await broker.objects.put(ref, bytes);
    return Date.now();
  };
  const stored = async (): Promise<number> =>
    (await broker.jsm.streams.info("TL_OB_0")).state.messages;
  await broker.js.publish(`tl.ob.0.acme.${ref.session}.c.abandoned`, "chunk");
  await put();
  expect(await stored()).toBe(5);
  // Put again and again: taken as it is at first, and stored anew once it is not young any more.
  let last = 0;
  await eventually(async () => {
    last = await put();
    return (await stored()) === 9;
  });
  const { $artifact } = await broker.objects.put(ref, bytes);
  await eventually(async () => {
    const found = await broker.objects.get(ref, $artifact);
    if (!found) expect(Date.now() - last).toBeGreaterThanOrEqual(times.historyMaxAgeMs);
    return found === undefined;
  });
  await eventually(async () => (await stored()) === 0);
  await broker.close();
});

test("[KEP5] snapshots and entries of runs go with their time, records of sessions stay", async () => {
  const broker = await open({ historyMaxAgeMs: SECOND, eventsMaxAgeMs: SECOND, adjust: true });
  const ref = freshRun();
  const mark = { seq: 1, streamSeq: 1, attempt: 1, writer: "w", epoch: "e", cmd: 0 };
  await broker.snapshots.write(ref, { ...mark, state: { text: "x".repeat(1024 * 1024) } });
  const times = { queued_at: Date.now(), by: "ann", agent: "echo" };
  await broker.runs.put({ ...ref, ...times, status: "queued" });
  const session = { session: ref.session, created_at: Date.now() };
  await broker.sessionIndex.add(ref.tenant, "ann", session);
  expect(await broker.runs.list(ref)).toHaveLength(1);
  expect(await broker.snapshots.read(ref, "leader")).toMatchObject({ seq: 1 });
  await eventually(async () => (await broker.snapshots.read(ref, "replica")) === undefined);
  await eventually(async () => (await broker.runs.list(ref)).length === 0);
  const page = await broker.sessionIndex.list(ref.tenant, "ann", { limit: 1 });
  expect(page.entries).toEqual([session]);
  await broker.close();
});
