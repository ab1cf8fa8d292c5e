import { type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Broker, offload, openBroker, resolve, type RunRef } from "../src/index.ts";
import { type Snapshot, SnapshotStore } from "../src/snapshot-store.ts";
import { snapshotSubject } from "../src/subjects.ts";
import { parseSuperseded, superseding, supersededText } from "../src/superseded.ts";
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

  const LARGE = "x".repeat(600 * 1024);
  const large = (seq: number): Snapshot => snapshot({ seq, state: { seq, text: LARGE } });

  /** The objects that hold states of a session's runs. */
  async function states(ref: RunRef): Promise<string[]> {
    const shard = broker.shardOf(ref.session);
    const { state } = await broker.jsm.streams.info(`TL_OB_${shard}`, {
      subjects_filter: `tl.ob.${shard}.${ref.tenant}.${ref.session}.m.*`,
    });
    return Object.keys(state.subjects ?? {}).map((subject) => subject.split(".")[6] ?? "");
  }

  test("[SNP5] replaced states are removed after a minute, and at most eight stay", async () => {
    const store = new SnapshotStore(broker);
    const ref = freshRun();
    const ids: string[] = [];
    for (let seq = 1; seq <= 12; seq += 1) {
      await store.write(ref, large(seq));
      ids.push((await store.peek(ref, "leader"))?.stateRef?.$artifact ?? "");
      expect((await store.read(ref, "leader"))?.seq).toBe(seq);
    }
    expect((await states(ref)).toSorted()).toEqual(ids.slice(-9).toSorted());
    // What anybody put by its hash is left alone, though it is the same state.
    const put = await offload(broker.objects, ref, large(13).state);
    await store.write(ref, large(13));
    await store.write(ref, snapshot({ seq: 14 }));
    expect(await resolve(broker.objects, ref, put)).toEqual(large(13).state);

    const old = Array.from({ length: 3 }, (_, at) => ({ id: `snp_${at}`, at }));
    expect(superseding(old, "snp_now", "snp_next", 60_001)).toEqual({
      due: old.slice(0, 2),
      left: [...old.slice(2), { id: "snp_now", at: 60_001 }],
    });
    expect(superseding(old, undefined, "snp_1", 60_001).due).toEqual(old.slice(0, 1));
    expect(parseSuperseded(supersededText(old) ?? "")).toEqual(old);
    expect(parseSuperseded(",a.b:1,snp_1,snp_2:x,snp_3:7")).toEqual([{ id: "snp_3", at: 7 }]);
  });

  test("[SNP4] [SNP5] a reader who was told of a state that is gone reads the newer one", async () => {
    const ref = freshRun();
    const store = new SnapshotStore(broker);
    await store.write(ref, large(1));
    const shard = broker.shardOf(ref.session);
    const query = { last_by_subj: snapshotSubject(ref, shard) };
    const told = await broker.reader.read(`TL_SN_${shard}`, query);
    for (let seq = 2; seq <= 11; seq += 1) await store.write(ref, large(seq));
    const { nc, objects } = broker;
    const shards = (session: string): number => broker.shardOf(session);
    const reader = { read: () => Promise.resolve(told) };
    const behind = new SnapshotStore({ nc, objects, shardOf: shards, reader });
    expect((await behind.peek(ref, "replica"))?.seq).toBe(1);
    expect((await behind.read(ref, "replica"))?.state).toEqual(large(11).state);
  });

  test("[SNP4] [SNP2] a fenced writer of a large state stores no object", async () => {
    const ref = freshRun();
    const store = new SnapshotStore(broker);
    await store.write(ref, snapshot({ attempt: 2 }));
    expect(await store.write(ref, large(99))).toBe("fenced");
    expect(await states(ref)).toEqual([]);
  });
});
