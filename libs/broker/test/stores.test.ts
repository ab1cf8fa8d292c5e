import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AgentDirectory, openAgentDirectory } from "../src/agent-directory.ts";
import { type Broker, openBroker, ValueTooLarge } from "../src/index.ts";
import { type SessionRecord, SessionStore } from "../src/session-store.ts";
import { freshRun } from "./harness.ts";

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

describe("a session's record is changed", () => {
  test("[SES4] by many at once, and every change is in it", async () => {
    const store = new SessionStore(broker);
    const offer = record({ options: { model: "m", nested: { a: [1] } } });
    await store.create(offer);
    const users = Array.from({ length: 20 }, (_, i) => `user ${i}`);
    const add = (user: string): ReturnType<typeof store.update> =>
      store.update(offer, (held) => ({ ...held, members: { ...held.members, [user]: "viewer" } }));
    await Promise.all(users.map(add));
    const stands = await store.get(offer);
    expect(Object.keys(stands?.members ?? {}).toSorted()).toEqual(
      ["mail@example.org", ...users].toSorted(),
    );
    expect(stands?.options).toEqual(offer.options);
    expect(await add("user 7")).toEqual(stands);
  });

  test("[SES4] not where there is none, and not into another's; what the change throws is thrown", async () => {
    const store = new SessionStore(broker);
    expect(await store.update(freshRun(), (held) => held)).toBeUndefined();
    const offer = record();
    await store.create(offer);
    const { state: before } = await broker.jsm.streams.info("KV_TL_SESSIONS");
    expect(await store.update(offer, (held) => ({ ...held }))).toEqual(offer);
    const moved = store.update(offer, (held) => ({ ...held, session: "ses_other" }));
    await expect(moved).rejects.toThrow(RangeError);
    const refuse = (): never => {
      throw new TypeError("no");
    };
    await expect(store.update(offer, refuse)).rejects.toThrow(TypeError);
    const large = store.update(offer, (held) => ({ ...held, title: "x".repeat(2 * 1024 * 1024) }));
    await expect(large).rejects.toThrow(ValueTooLarge);
    expect((await broker.jsm.streams.info("KV_TL_SESSIONS")).state.last_seq).toBe(before.last_seq);
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

  test("[DIR4] what cannot be read is passed over, and the others are listed", async () => {
    const warnings: string[] = [];
    const onWarning = (text: string): number => warnings.push(text);
    const directory = new AgentDirectory(broker, { ttlMs: TTL_MS, onWarning });
    const offer = directory.announce({ agent: "b", description: "", examples: [], worker: "w1" });
    await eventually(() => directory.offered("b"));
    const nonsense = ["not json", "null", '"text"'];
    for (const [i, text] of nonsense.entries()) {
      await broker.js.publish(`$KV.TL_AGENTS.a.w${i}`, text);
    }
    expect(await directory.list()).toEqual([
      { agent: "b", description: "", examples: [], workers: 1 },
    ]);
    expect(warnings).toHaveLength(1);
    await offer.stop();
  });
});
