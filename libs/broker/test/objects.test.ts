import { createHash, randomBytes } from "node:crypto";
import { MAX_INLINE_BYTES } from "@throughline/protocol";
import { eventually, natsFilter, type NatsServer, startNats, tcpProxy } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Broker,
  BrokerUnavailable,
  isArtifactRef,
  LogCorrupt,
  ObjectGone,
  offload,
  openBroker,
  resolve,
  type SessionRef,
} from "../src/index.ts";
import { NotAnswered } from "../src/direct-read.ts";
import { ObjectStore, type ObjectStoreBroker } from "../src/object-store.ts";
import { Upload } from "../src/object-upload.ts";
import { objectSubject, streamName } from "../src/subjects.ts";
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

const KIB = 1024;
const MIB = 1024 * KIB;

/** A store over other replicas than there are: what they answer is the test's. */
function storeWith(read: ObjectStoreBroker["reader"]["read"]): ObjectStore {
  const { nc, jsm, historyMaxAgeMs } = broker;
  const shardOf = (session: string): number => broker.shardOf(session);
  return new ObjectStore({ nc, jsm, historyMaxAgeMs, shardOf, reader: { read } });
}

/** Messages stored for a session, by kind: what objects are, and their chunks. */
async function stored(ref: SessionRef): Promise<{ about: number; chunks: number }> {
  const shard = broker.shardOf(ref.session);
  const count = async (kind: string): Promise<number> => {
    const filter = `tl.ob.${shard}.${ref.tenant}.${ref.session}.${kind}.*`;
    const { state } = await broker.jsm.streams.info(streamName.objects(shard), {
      subjects_filter: filter,
    });
    return Object.values(state.subjects ?? {}).reduce((sum, n) => sum + n, 0);
  };
  return { about: await count("m"), chunks: await count("c") };
}

function same(a: Uint8Array | undefined, b: Uint8Array): boolean {
  return a !== undefined && Buffer.compare(a, b) === 0;
}

describe("objects", () => {
  test("[OBJ1] what is read is what was put, whatever its size", async () => {
    const ref = freshRun();
    for (const size of [0, 1, 256 * KIB, 256 * KIB + 1, 2 * MIB, 9 * MIB + 17]) {
      const bytes = randomBytes(size);
      const made = await broker.objects.put(ref, bytes, "image/png");
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      const id = `art_${sha256.slice(0, 32)}`;
      expect(made).toEqual({ $artifact: id, bytes: size, sha256 });
      expect(same(await broker.objects.get(ref, id), bytes)).toBe(true);
      const about = { bytes: size, sha256, media_type: "image/png" };
      expect(await broker.objects.stat(ref, id)).toEqual(about);
    }
  });

  test("[OBJ2] the same bytes are one object of a session and another of any other session", async () => {
    const ref = freshRun();
    const bytes = randomBytes(MIB);
    const first = await broker.objects.put(ref, bytes, "text/plain");
    const before = await stored(ref);
    expect(before).toEqual({ about: 1, chunks: 4 });
    expect(await broker.objects.put(ref, bytes, "text/html")).toEqual(first);
    expect(await stored(ref)).toEqual(before);
    expect((await broker.objects.stat(ref, first.$artifact))?.media_type).toBe("text/plain");
    expect(await broker.objects.get(freshRun(), first.$artifact)).toBeUndefined();
    const elsewhere = { ...ref, tenant: "other" };
    expect(await broker.objects.get(elsewhere, first.$artifact)).toBeUndefined();
  });

  test("[OBJ2] put by twenty at once it is one object, and no chunks are left that nobody reads", async () => {
    const ref = freshRun();
    const bytes = randomBytes(600 * KIB);
    const puts = Array.from({ length: 20 }, () => broker.objects.put(ref, bytes));
    const [first, ...others] = await Promise.all(puts);
    for (const other of others) expect(other).toEqual(first);
    expect(same(await broker.objects.get(ref, first?.$artifact ?? ""), bytes)).toBe(true);
    expect(await stored(ref)).toEqual({ about: 1, chunks: 3 });
  });

  test("[OBJ3] an object is there when it is whole: chunks without their end are nothing", async () => {
    const ref = freshRun();
    const shard = broker.shardOf(ref.session);
    const subject = objectSubject.chunks(ref, shard, "abandoned");
    await broker.js.publish(subject, randomBytes(KIB));
    const bytes = randomBytes(MIB);
    const made = await broker.objects.put(ref, bytes);
    expect(same(await broker.objects.get(ref, made.$artifact), bytes)).toBe(true);
    expect(await broker.objects.get(ref, "abandoned")).toBeUndefined();
  });

  test("[OBJ3] an object whose chunks are gone is not there; one with other bytes is an error", async () => {
    const ref = freshRun();
    const shard = broker.shardOf(ref.session);
    const stream = streamName.objects(shard);
    const bytes = randomBytes(MIB);
    const made = await broker.objects.put(ref, bytes);
    const filter = objectSubject.chunks(ref, shard, "*");
    await broker.jsm.streams.purge(stream, { filter, keep: 2 });
    expect(await broker.objects.get(ref, made.$artifact)).toBeUndefined();
    await broker.jsm.streams.purge(stream, { filter });
    expect(await broker.objects.get(ref, made.$artifact)).toBeUndefined();

    const small = await broker.objects.put(ref, Buffer.from("small"));
    const at = objectSubject.about(ref, shard, small.$artifact);
    const { headers } = await stolen(stream, at);
    await broker.js.publish(at, "SMALL", { headers });
    await expect(broker.objects.get(ref, small.$artifact)).rejects.toThrow(LogCorrupt);
  });

  test("[OBJ4] what a replica does not have, or does not answer, is asked of the leader", async () => {
    const ref = freshRun();
    const bytes = randomBytes(MIB);
    const made = await broker.objects.put(ref, bytes);
    const lagging = storeWith(() => Promise.resolve({ messages: [], pending: 0 }));
    const frozen = storeWith(() => Promise.reject(new NotAnswered("frozen")));
    for (const far of [lagging, frozen]) {
      expect(same(await far.get(ref, made.$artifact), bytes)).toBe(true);
      expect((await far.stat(ref, made.$artifact))?.bytes).toBe(MIB);
      expect(await far.get(ref, "art_none")).toBeUndefined();
    }
    const down = storeWith(() => Promise.reject(new BrokerUnavailable("down")));
    await expect(down.get(ref, made.$artifact)).rejects.toThrow(BrokerUnavailable);
  });

  test("[OBJ4] a replica's older word, which names chunks that were removed, is not believed", async () => {
    const ref = freshRun();
    const content = (text: string) => {
      const bytes = Buffer.from(text.repeat(MIB));
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      return { bytes, sha256, media_type: "text/plain" };
    };
    const shard = broker.shardOf(ref.session);
    await broker.objects.putAs(ref, "snp_1", content("a"));
    const query = { last_by_subj: objectSubject.about(ref, shard, "snp_1") };
    const old = await broker.reader.read(streamName.objects(shard), query);
    await broker.objects.remove(ref, "snp_1");
    expect(await broker.objects.get(ref, "snp_1")).toBeUndefined();
    await broker.objects.putAs(ref, "snp_1", content("b"));
    const far = storeWith((stream, asked) =>
      "last_by_subj" in asked ? Promise.resolve(old) : broker.reader.read(stream, asked),
    );
    expect(same(await far.get(ref, "snp_1"), content("b").bytes)).toBe(true);
    await broker.objects.remove(ref, "snp_1");
    await broker.objects.remove(ref, "snp_1");
    expect(await stored(ref)).toEqual({ about: 0, chunks: 0 });
  });

  test("[OBJ5] an answer that is lost is settled: each chunk is stored once", async () => {
    const ref = freshRun();
    const proxy = await tcpProxy({ port: nats.port });
    let acks = 0;
    // Every second PubAck is lost, so each message's fate has to be learnt at some time.
    const filter = natsFilter((m) => {
      const isAck = m.payload.includes('"stream":"TL_OB_') && !m.payload.includes('"type"');
      return isAck && (acks += 1) % 2 === 0 ? "drop" : "pass";
    });
    proxy.tap(filter.tap);
    const worker = await openBroker({ servers: [proxy.address], name: "w", shards: 2 });
    const bytes = randomBytes(600 * KIB);
    const made = await worker.objects.put(ref, bytes);
    expect(filter.dropped).toBeGreaterThanOrEqual(2);
    expect(same(await broker.objects.get(ref, made.$artifact), bytes)).toBe(true);
    expect(await stored(ref)).toEqual({ about: 1, chunks: 3 });
    await worker.close();
    proxy.close();
  }, 40_000);

  test("[OBJ5] a chunk that arrives after it was given up and sent again is stored once", async () => {
    const ref = freshRun();
    const shard = broker.shardOf(ref.session);
    const place = {
      stream: streamName.objects(shard),
      subject: objectSubject.chunks(ref, shard, "late"),
    };
    const { nc } = broker;
    const held: (() => Promise<unknown>)[] = [];
    let chunks = 0;
    const late: typeof nc.request = async (subject, body, options) => {
      if (subject !== place.subject) return nc.request(subject, body, options);
      chunks += 1;
      if (chunks === 2) {
        held.push(() => nc.request(subject, body, options));
        throw new Error("no answer in time");
      }
      await Promise.all(held.splice(0).map((send) => send()));
      return nc.request(subject, body, options);
    };
    const slow: typeof nc = Object.create(nc, { request: { value: late } });
    const upload = new Upload(slow, place);
    for (let i = 0; i < 4; i += 1) await upload.append(Buffer.from(`chunk ${i}`));
    expect(chunks).toBe(5);
    expect(upload.chunks).toBe(4);
    expect(await stored(ref)).toEqual({ about: 0, chunks: 4 });
  });

  test("[OBJ6] no consumer is asked for, whatever is put and read", async () => {
    const seen = await consumerRequests(broker);
    const ref = freshRun();
    for (let i = 0; i < 50; i += 1) {
      const made = await broker.objects.put(ref, randomBytes(300 * KIB));
      await broker.objects.get(ref, made.$artifact);
      await broker.objects.stat(ref, made.$artifact);
      await broker.objects.get(ref, `art_${i}`);
    }
    expect(await seen.stop()).toEqual([]);
  });

  test("[OBJ8] what is no id never becomes a subject, and what is no media type no header", async () => {
    const ref = freshRun();
    for (const bad of ["*", ">", "a.b", "", "a b", "__proto__", "a".repeat(65)]) {
      await expect(broker.objects.get(ref, bad)).rejects.toThrow(RangeError);
      await expect(broker.objects.stat(ref, bad)).rejects.toThrow(RangeError);
      const others = [
        { ...ref, session: bad },
        { ...ref, tenant: bad },
      ];
      for (const other of others) {
        await expect(broker.objects.get(other, "art_1")).rejects.toThrow(RangeError);
        await expect(broker.objects.put(other, randomBytes(1))).rejects.toThrow(RangeError);
      }
    }
    for (const bad of ["", "a\r\nTl-At: 1", "ü", " a", "a".repeat(257)]) {
      await expect(broker.objects.put(ref, randomBytes(1), bad)).rejects.toThrow(RangeError);
    }
    expect(await stored(ref)).toEqual({ about: 0, chunks: 0 });
  });
});

async function stolen(stream: string, subject: string) {
  const raw = await broker.jsm.streams.getMessage(stream, { last_by_subj: subject });
  if (!raw) throw new Error("nothing is stored there");
  raw.header.delete("Nats-Expected-Last-Subject-Sequence");
  return { headers: raw.header };
}

describe("large values", () => {
  test("[OBJ7] a value is replaced by a reference only over the limit, in bytes of JSON, and comes back whole", async () => {
    const ref = freshRun();
    const json = (bytes: number): string => "x".repeat(bytes - 2);
    for (const kept of [undefined, null, 0, "", { a: [1] }, json(MAX_INLINE_BYTES)]) {
      expect(await offload(broker.objects, ref, kept)).toBe(kept);
      expect(await resolve(broker.objects, ref, kept)).toBe(kept);
    }
    const large = [json(MAX_INLINE_BYTES + 1), { text: "ü".repeat(MAX_INLINE_BYTES / 2) }];
    for (const value of large) {
      const held = await offload(broker.objects, ref, value);
      expect(isArtifactRef(held)).toBe(true);
      expect(await offload(broker.objects, ref, value)).toEqual(held);
      expect(await resolve(broker.objects, ref, held)).toEqual(value);
      await expect(resolve(broker.objects, freshRun(), held)).rejects.toThrow(ObjectGone);
    }
  });

  test("[OBJ7] what only looks like a reference is a value; one that names other bytes is refused", async () => {
    const ref = freshRun();
    const made = await broker.objects.put(ref, Buffer.from('{"a":1}'));
    expect(await resolve(broker.objects, ref, made)).toEqual({ a: 1 });
    for (const value of [
      { ...made, more: 1 },
      { ...made, $artifact: "a.b" },
      { ...made, sha256: "ab" },
      { ...made, bytes: -1 },
      { $artifact: made.$artifact },
      [made],
    ]) {
      expect(await resolve(broker.objects, ref, value)).toBe(value);
    }
    const forged = { ...made, sha256: "0".repeat(64) };
    await expect(resolve(broker.objects, ref, forged)).rejects.toThrow(ObjectGone);
    const text = await broker.objects.put(ref, Buffer.from("no json"));
    await expect(resolve(broker.objects, ref, text)).rejects.toThrow(LogCorrupt);
  });
});

describe("NATS is killed", () => {
  test("[OBJ5] while objects are put and read: each comes whole, by the same call", async () => {
    const refs = Array.from({ length: 4 }, () => freshRun());
    const bytes = refs.map(() => randomBytes(8 * MIB));
    const puts = refs.map((ref, i) => broker.objects.put(ref, bytes[i] ?? randomBytes(1)));
    await eventually(async () => (await stored(refs[0] ?? freshRun())).chunks > 3);
    await nats.kill();
    const late = resolve(broker.objects, freshRun(), {
      $artifact: "art_none",
      bytes: 1,
      sha256: "0".repeat(64),
    });
    const refused = expect(late).rejects.toThrow(ObjectGone);
    await nats.restart();
    const made = await Promise.all(puts);
    await refused;
    for (const [i, ref] of refs.entries()) {
      const id = made[i]?.$artifact ?? "";
      const found = await eventually(() => broker.objects.get(ref, id));
      expect(same(found, bytes[i] ?? randomBytes(1))).toBe(true);
      expect(await stored(ref)).toEqual({ about: 1, chunks: 32 });
    }
  }, 60_000);
});
