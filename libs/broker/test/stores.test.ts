import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AgentDirectory, openAgentDirectory } from "../src/agent-directory.ts";
import { type Broker, openBroker } from "../src/index.ts";
import { type SessionRecord, SessionStore } from "../src/session-store.ts";
import { type Snapshot, SnapshotStore } from "../src/snapshot-store.ts";
import { freshRun, startedWriter } from "./harness.ts";

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

/** A replica that has nothing yet. */
const lagging = { read: () => Promise.resolve({ messages: [], pending: 0 }) };

function record(over: Partial<SessionRecord> = {}): SessionRecord {
  return {
    tenant: "acme",
    session: freshRun().session,
    owner: "auth0|7 *.>\u0000ü",
    members: { "mail@example.org": "viewer" },
    created_at: 1_764_532_800_123,
    command_hash: "h1",
    ...over,
  };
}

describe("sessions", () => {
  test("[SES1] the first writer wins, and the others are told what it wrote", async () => {
    const store = new SessionStore(broker);
    const session = freshRun().session;
    const offers = Array.from({ length: 10 }, (_, i) => record({ session, title: `title ${i}` }));
    const outcomes = await Promise.all(offers.map((offer) => store.create(offer)));
    const created = outcomes.filter((o) => o.outcome === "created");
    expect(created.length).toBe(1);
    for (const outcome of outcomes) expect(outcome.record).toEqual(created[0]?.record);
    expect(await store.get({ tenant: "acme", session })).toEqual(created[0]?.record);
  });

  test("[SES1] the same create again, after an unknown outcome, is still the creation", async () => {
    const store = new SessionStore(broker);
    const offer = record();
    expect((await store.create(offer)).outcome).toBe("created");
    expect((await store.create(offer)).outcome).toBe("created");
  });

  test("[SES2] a user's name is data: it is kept as it is and is in no key", async () => {
    const store = new SessionStore(broker);
    const offer = record();
    await store.create(offer);
    expect(await store.get(offer)).toEqual(offer);
    const { state } = await broker.jsm.streams.info("KV_TL_SESSIONS", { subjects_filter: ">" });
    for (const subject of Object.keys(state.subjects ?? {})) expect(subject).not.toContain("auth0");
  });
  test("[SES3] a replica's miss is asked of the leader", async () => {
    const offer = record();
    await new SessionStore(broker).create(offer);
    const { nc, jsm, replicas } = broker;
    expect(await new SessionStore({ nc, jsm, replicas, reader: lagging }).get(offer)).toEqual(
      offer,
    );
  });

  test("[SES3] a session that does not exist is undefined; an id that is none never becomes a key", async () => {
    const store = new SessionStore(broker);
    expect(await store.get({ tenant: "acme", session: "ses_none" })).toBeUndefined();
    for (const session of ["*", ">", "a.b", "", "a b"]) {
      await expect(store.get({ tenant: "acme", session })).rejects.toThrow(RangeError);
      await expect(store.create(record({ session }))).rejects.toThrow(RangeError);
    }
  });
});

describe("snapshots", () => {
  function snapshot(over: Partial<Snapshot> = {}): Snapshot {
    return {
      state: { seq: 10, text: "ü" },
      seq: 10,
      streamSeq: 17,
      attempt: 1,
      writer: "w",
      epoch: "e1",
      cmd: 3,
      ...over,
    };
  }

  test("[SNP1] what is read is what was written, from the leader and from any replica", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    expect(await store.read(ref, "replica")).toBeUndefined();
    expect(await store.read(ref, "leader")).toBeUndefined();
    expect(await store.write(ref, snapshot())).toBe("stored");
    expect(await store.read(ref, "leader")).toEqual(snapshot());
    expect(await store.read(ref, "replica")).toEqual(snapshot());
  });
  test("[SNP1] a replica's miss is asked of the leader", async () => {
    const ref = freshRun();
    await new SnapshotStore(broker).write(ref, snapshot());
    const far = new SnapshotStore({
      nc: broker.nc,
      objects: broker.objects,
      shardOf: (session) => broker.shardOf(session),
      reader: lagging,
    });
    expect(await far.read(ref, "replica")).toEqual(snapshot());
  });

  test("[SNP2] [INV3] an older attempt never replaces a newer one, whoever comes first", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    const newer = snapshot({ attempt: 2, seq: 12 });
    const outcomes = await Promise.all([
      store.write(ref, snapshot({ seq: 11 })),
      store.write(ref, newer),
      store.write(ref, snapshot({ seq: 13 })),
    ]);
    expect(outcomes[1]).toBe("stored");
    expect(await store.write(ref, snapshot({ seq: 99 }))).toBe("fenced");
    expect(await store.read(ref, "leader")).toEqual(newer);
  });

  test("[SNP2] of one attempt the one of the latest event stays", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    await Promise.all([30, 10, 20].map((seq) => store.write(ref, snapshot({ seq }))));
    expect((await store.read(ref, "leader"))?.seq).toBe(30);
  });

  test("[SNP3] a snapshot of an incarnation that the log is not of is fenced; the log's replaces it", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    const writer = await startedWriter(broker, ref);
    await writer.append({ type: "run.started", payload: { attempt: 1, worker: "w1" } });
    await store.write(ref, snapshot({ epoch: "gone", attempt: 9, seq: 900 }));
    const epoch = (await broker.events.last({ kind: "run", ...ref }, "leader"))?.epoch ?? "";
    expect(await store.write(ref, snapshot({ epoch }))).toBe("stored");
    expect(await store.write(ref, snapshot({ epoch: "gone", attempt: 10 }))).toBe("fenced");
    expect((await store.read(ref, "leader"))?.epoch).toBe(epoch);
  });

  test("[SNP4] a state that fits no frame is kept as an object and read like any other", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    const state = { seq: 10, text: "ü".repeat(3 * 1024 * 1024) };
    expect(await store.write(ref, snapshot({ state }))).toBe("stored");
    for (const from of ["leader", "replica"] as const) {
      const { stateRef, ...found } = (await store.read(ref, from)) ?? {};
      expect(found).toEqual(snapshot({ state }));
      const bytes = await broker.objects.get(ref, stateRef?.$artifact ?? "");
      expect(JSON.parse(Buffer.from(bytes ?? []).toString("utf8"))).toEqual(state);
      expect(await store.peek(ref, from)).toEqual({ ...snapshot({ state: undefined }), stateRef });
    }
  });
});

describe("the agent directory", () => {
  const TTL_MS = 600;

  test("[DIR1] what workers announce is listed by kind, with how many offer it", async () => {
    const directory = openAgentDirectory(broker, { ttlMs: TTL_MS });
    const offers = ["w1", "w2"].map((worker) =>
      directory.announce({ agent: "report", description: "reports", examples: [{ a: 1 }], worker }),
    );
    const other = directory.announce({
      agent: "play",
      description: "",
      examples: [],
      worker: "w1",
    });
    await eventually(async () => (await directory.list()).length === 2);
    await eventually(async () => (await directory.list())[1]?.workers === 2);
    expect(await directory.list()).toEqual([
      { agent: "play", description: "", examples: [], workers: 1 },
      { agent: "report", description: "reports", examples: [{ a: 1 }], workers: 2 },
    ]);
    expect(await directory.offered("report")).toBe(true);
    expect(await directory.offered("repo")).toBe(false);
    const { state } = await broker.jsm.streams.info("KV_TL_AGENTS");
    expect(state.consumer_count).toBe(0);
    await Promise.all([...offers, other].map((offer) => offer.stop()));
    expect(await directory.list()).toEqual([]);
  });

  test("[DIR2] a heartbeat keeps an announcement; a dead worker's vanishes", async () => {
    const dying = await openBroker({ servers: [nats.url], name: "dying", shards: 2 });
    const alive = new AgentDirectory(broker, { ttlMs: TTL_MS });
    const kept = alive.announce({ agent: "kept", description: "", examples: [], worker: "w1" });
    new AgentDirectory(dying, { ttlMs: TTL_MS }).announce({
      agent: "lost",
      description: "",
      examples: [],
      worker: "w2",
    });
    await eventually(async () => (await alive.list()).length === 2);
    await dying.close();
    await eventually(async () => !(await alive.offered("lost")));
    // The other was seen at every look of twice the time to live.
    const until = Date.now() + 2 * TTL_MS;
    await eventually(async () => {
      expect(await alive.offered("kept")).toBe(true);
      return Date.now() > until;
    });
    await kept.stop();
    expect(await alive.offered("kept")).toBe(false);
  });

  test("[DIR3] a reader does not change how long announcements live", async () => {
    const writer = new AgentDirectory(broker, { ttlMs: TTL_MS });
    const offer = writer.announce({ agent: "x", description: "", examples: [], worker: "w1" });
    await eventually(() => writer.offered("x"));
    await new AgentDirectory(broker, { ttlMs: 77_000 }).list();
    const { config } = await broker.jsm.streams.info("KV_TL_AGENTS");
    expect(config.max_age).toBe(TTL_MS * 1_000_000);
    await offer.stop();
  });
});
