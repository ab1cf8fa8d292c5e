import {
  eventually,
  type NatsServer,
  type SeededRandom,
  seededRandom,
  startNats,
} from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Broker, openBroker, type RunEntry, type SessionRef } from "../src/index.ts";
import { type DirectReader, NotAnswered, TooManyResults } from "../src/direct-read.ts";
import { mergeEntries, RunIndex } from "../src/run-index.ts";
import { SessionIndex } from "../src/session-index.ts";
import { consumerRequests, freshRun } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
});

const NOW = 1_764_532_800_000;

function entry(ref: SessionRef, n: number, over: Partial<RunEntry> = {}): RunEntry {
  const { tenant, session } = ref;
  const run = `run_${n}`;
  const queued_at = NOW + n;
  return { tenant, session, run, agent: "echo", status: "queued", by: "ann", queued_at, ...over };
}

/** The index as seen through replicas that answer in the test's way. */
function runsThrough(read: DirectReader["read"]): RunIndex {
  const { nc, jsm, replicas, historyMaxAgeMs } = broker;
  return new RunIndex({ nc, jsm, replicas, historyMaxAgeMs, reader: { read } });
}

describe("a session's runs", () => {
  test("[LST1] are listed newest first, each once, and no other session's", async () => {
    const ref = freshRun();
    for (const n of [3, 1, 4, 2]) await broker.runs.put(entry(ref, n));
    await broker.runs.put(entry(ref, 1, { status: "completed", ended_at: NOW + 50 }));
    await broker.runs.put(entry({ ...ref, tenant: "other" }, 9));
    await broker.runs.put(entry(freshRun(), 9));
    const names = (list: readonly RunEntry[]): string[] => list.map((each) => each.run);
    expect(names(await broker.runs.list(ref))).toEqual(["run_4", "run_3", "run_2", "run_1"]);
    expect(names(await broker.runs.list(ref, 2))).toEqual(["run_4", "run_3"]);
    expect(await broker.runs.list(freshRun())).toEqual([]);
    const ended = { status: "completed", ended_at: NOW + 50 } as const;
    expect(await broker.runs.get({ ...ref, run: "run_1" })).toEqual(entry(ref, 1, ended));
    expect(await broker.runs.get({ ...ref, run: "run_9" })).toBeUndefined();
  });

  test("[LST1] a session of more runs than the server names at once is listed whole", async () => {
    const ref = freshRun();
    const many = Array.from({ length: 1_300 }, (_, n) => entry(ref, n));
    for (let from = 0; from < many.length; from += 100) {
      await Promise.all(many.slice(from, from + 100).map((each) => broker.runs.put(each)));
    }
    const filter = `$KV.TL_RUNS.${ref.tenant}.${ref.session}.*`;
    const read = broker.reader.read("KV_TL_RUNS", { multi_last: [filter], batch: 1_024 });
    await expect(read).rejects.toThrow(TooManyResults);
    const listed = await broker.runs.list(ref, 5_000);
    expect(listed).toEqual(many.toReversed());
    expect((await broker.runs.list(ref, 3)).map((each) => each.run)).toEqual([
      "run_1299",
      "run_1298",
      "run_1297",
    ]);
  });

  test("[KEP2] a list that lacks what was acknowledged is read again; a miss is asked of the leader", async () => {
    const ref = freshRun();
    await broker.runs.put(entry(ref, 1));
    const query = { multi_last: [`$KV.TL_RUNS.${ref.tenant}.${ref.session}.*`], batch: 10 };
    const old = await broker.reader.read("KV_TL_RUNS", query);
    await broker.runs.put(entry(ref, 2));
    let reads = 0;
    const lagging = runsThrough((stream, asked) => {
      reads += 1;
      if (reads === 1) return Promise.resolve(old);
      if (reads === 2) return Promise.reject(new NotAnswered("frozen"));
      return broker.reader.read(stream, asked);
    });
    expect((await lagging.list(ref)).map((each) => each.run)).toEqual(["run_2", "run_1"]);
    expect(reads).toBe(3);
    const behind = runsThrough(() => Promise.resolve({ messages: [], pending: 0 }));
    expect((await behind.get({ ...ref, run: "run_2" }))?.run).toBe("run_2");
  });

  test("[LST2] an entry never goes back, and says what either of its writers knew", () => {
    const ref = freshRun();
    const queued = entry(ref, 1, { title: "a title", retry_of: "run_0" });
    const running = entry(ref, 1, { status: "running" });
    const ended = entry(ref, 1, { status: "failed", ended_at: NOW + 9 });
    const said = { title: "a title", retry_of: "run_0" };
    expect(mergeEntries(queued, running)).toEqual({ ...running, ...said });
    expect(mergeEntries(running, queued)).toEqual({ ...running, ...said });
    expect(mergeEntries(ended, queued)).toEqual({ ...ended, ...said });
    expect(mergeEntries(ended, running)).toEqual(ended);
    expect(mergeEntries(ended, { ...ended, status: "completed", ended_at: NOW + 10 })).toEqual(
      ended,
    );
    const waiting = entry(ref, 1, { status: "waiting_input" });
    expect(mergeEntries(running, waiting).status).toBe("waiting_input");
    expect(mergeEntries(waiting, running).status).toBe("running");
  });

  test("[LST2] [KEP1] written by many at once in any order, what stands is the furthest", async () => {
    const random: SeededRandom = seededRandom();
    for (let i = 0; i < 20; i += 1) {
      const ref = freshRun();
      const puts = random.shuffle([
        entry(ref, 1, { title: "a title" }),
        entry(ref, 1, { status: "running" }),
        entry(ref, 1, { status: "waiting_tools" }),
        entry(ref, 1, { status: "completed", ended_at: NOW + 9 }),
        entry(ref, 1),
      ]);
      await Promise.all(puts.map((each) => broker.runs.put(each)));
      const ended = { status: "completed", ended_at: NOW + 9, title: "a title" } as const;
      expect(await broker.runs.list(ref)).toEqual([entry(ref, 1, ended)]);
    }
  });

  test("[KEP4] what is no id never becomes a key", async () => {
    const ref = freshRun();
    for (const bad of ["*", ">", "a.b", "", "__proto__"]) {
      await expect(broker.runs.list({ ...ref, session: bad })).rejects.toThrow(RangeError);
      await expect(broker.runs.list({ ...ref, tenant: bad })).rejects.toThrow(RangeError);
      await expect(broker.runs.get({ ...ref, run: bad })).rejects.toThrow(RangeError);
      await expect(broker.runs.put(entry(ref, 1, { run: bad }))).rejects.toThrow(RangeError);
    }
  });
});

describe("a user's sessions", () => {
  const USERS = ["ann", "auth0|7 *.>\u0000ü", "x".repeat(256), "\ud800", "", "ann.*"];

  const session = (n: number): { session: string; created_at: number } => ({
    session: `ses_${n}`,
    created_at: NOW + n,
  });

  test("[LST3] [KEP4] each user has their own list, whatever characters their name has", async () => {
    const tenant = freshRun().run;
    for (const [n, user] of USERS.entries()) {
      await broker.sessionIndex.add(tenant, user, { ...session(n), title: "ü" });
      await broker.sessionIndex.add(tenant, user, { ...session(n), title: "ü" });
    }
    for (const [n, user] of USERS.entries()) {
      const page = await broker.sessionIndex.list(tenant, user, { limit: 10 });
      expect(page).toEqual({ entries: [{ ...session(n), title: "ü" }] });
      const elsewhere = await broker.sessionIndex.list("other", user, { limit: 10 });
      expect(elsewhere).toEqual({ entries: [] });
    }
    for (const bad of ["*", ">", "a.b", ""]) {
      await expect(broker.sessionIndex.list(bad, "ann", { limit: 1 })).rejects.toThrow(RangeError);
      const wrong = { session: bad, created_at: NOW };
      await expect(broker.sessionIndex.add(tenant, "ann", wrong)).rejects.toThrow(RangeError);
    }
    for (const created_at of [-1, 1.5, Number.NaN]) {
      const wrong = { session: "ses_1", created_at };
      await expect(broker.sessionIndex.add(tenant, "ann", wrong)).rejects.toThrow(RangeError);
    }
  });

  test("[LST3] pages go from the newest to the oldest, whatever is added or removed meanwhile", async () => {
    const tenant = freshRun().run;
    const random = seededRandom();
    const added = random.shuffle(Array.from({ length: 57 }, (_, n) => session(n)));
    await Promise.all(added.map((each) => broker.sessionIndex.add(tenant, "ann", each)));
    const seen: number[] = [];
    let before: string | undefined;
    let pages = 0;
    do {
      const page = await broker.sessionIndex.list(tenant, "ann", { limit: 10, before });
      seen.push(...page.entries.map((each) => each.created_at - NOW));
      before = page.next;
      pages += 1;
      await broker.sessionIndex.add(tenant, "ann", session(1_000 + pages));
      await broker.sessionIndex.remove(tenant, "ann", session(57 - pages * 10 + 3));
    } while (before !== undefined);
    expect(seen).toEqual(Array.from({ length: 57 }, (_, n) => 56 - n));
    const rest = await broker.sessionIndex.list(tenant, "ann", { limit: 200 });
    expect(rest.entries.length).toBe(57);
    const list = broker.sessionIndex.list(tenant, "ann", { limit: 1, before: "*" });
    await expect(list).rejects.toThrow(RangeError);
  });

  test("[KEP2] an entry that a replica has not yet is asked of the leader", async () => {
    const tenant = freshRun().run;
    await broker.sessionIndex.add(tenant, "ann", session(1));
    const { nc, jsm, replicas } = broker;
    const read = (): Promise<{ messages: []; pending: number }> =>
      Promise.resolve({ messages: [], pending: 0 });
    const behind = new SessionIndex({ nc, jsm, replicas, reader: { read } });
    expect((await behind.list(tenant, "ann", { limit: 5 })).entries).toEqual([session(1)]);
  });
});

test("[KEP3] lists, records and snapshots ask for no consumer", async () => {
  const seen = await consumerRequests(broker);
  const ref = freshRun();
  for (let n = 0; n < 30; n += 1) {
    await broker.runs.put(entry(ref, n));
    await broker.runs.list(ref);
    await broker.runs.get({ ...ref, run: `run_${n}` });
    await broker.sessionIndex.add("acme", "ann", { session: ref.session, created_at: NOW + n });
    await broker.sessionIndex.list("acme", "ann", { limit: 5 });
    await broker.sessions.get(ref);
    await broker.snapshots.read(ref, "replica");
  }
  expect(await seen.stop()).toEqual([]);
});

test("[KEP1] NATS is killed while entries are put: each is there afterwards, by the same call", async () => {
  const ref = freshRun();
  const random = seededRandom();
  const puts: Promise<void>[] = [];
  for (let n = 0; n < 300; n += 1) {
    puts.push(broker.runs.put(entry(ref, n)));
    if (n === 100) await nats.kill();
    if (random.chance(0.2)) await new Promise((resolve) => setImmediate(resolve));
  }
  await nats.restart();
  await Promise.all(puts);
  const listed = await eventually(() => broker.runs.list(ref, 1_000));
  expect(listed.length).toBe(300);

  // Also by a node that has not used the list before.
  const fresh = new RunIndex(broker);
  await nats.kill();
  const put = fresh.put(entry(ref, 300));
  await nats.restart();
  await put;
  expect((await eventually(() => fresh.list(ref, 1)))[0]?.run).toBe("run_300");
}, 60_000);
