import { reduce, initialRunState } from "@throughline/protocol";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { RunClaim } from "../src/claim.ts";
import { type Broker, FencedError, openBroker, openRunWriter, type RunRef } from "../src/index.ts";
import { parseQueued, recover, type RecoverBroker } from "../src/recover.ts";
import { SnapshotStore } from "../src/snapshot-store.ts";
import { eventsOf, freshRun, note, startedWriter, startRun, wholeLog } from "./harness.ts";
import {
  ACK_WAIT_MS,
  freshAgent,
  jobsLeft,
  startRuns,
  type TestWorker,
  testWorker,
  type WorkerOptions,
} from "./queue-harness.ts";

let nats: NatsServer;
let edge: Broker;
const workers: TestWorker[] = [];

beforeAll(async () => {
  nats = await startNats();
  edge = await openBroker({ servers: [nats.url], name: "edge", shards: 2 });
});
afterEach(async () => {
  for (const worker of workers.splice(0)) {
    await worker.queue.stop();
    for (const { claim } of worker.works) claim.abandon();
    await worker.die();
  }
});
afterAll(async () => {
  await edge.close();
  await nats.dispose();
});

async function worker(options: Omit<WorkerOptions, "servers">): Promise<TestWorker> {
  const made = await testWorker({ servers: [nats.url], ...options });
  workers.push(made);
  return made;
}

describe("the run queue", () => {
  test("[QUE4] [QUE7] a fresh run is given once, begun, finished and acked", async () => {
    const agent = freshAgent();
    const w = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent, input: { n: 7 } });
    const work = await w.given(ref);
    expect(work.claim.kind).toBe("fresh");
    expect(work.claim.queued.payload.input).toEqual({ n: 7 });
    await w.finish(work);
    expect(await jobsLeft(edge, agent)).toMatchObject({ pending: 0, waiting: 0 });
    expect(w.works.length).toBe(1);
  });

  test("[QUE5] [QUE12] [INV3] [INV4] a dead worker's run goes on elsewhere from its log", async () => {
    const agent = freshAgent();
    const first = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const before = await first.given(ref);
    const writer = await before.begun;
    for (let i = 0; i < 600; i += 1) void writer.append(note(i), { cmd: i });
    await writer.flush();
    await first.die();

    const second = await worker({ agent });
    const after = await second.given(ref);
    expect(after.claim.kind).toBe("takeover");
    const log = after.claim.log!;
    expect(log.attempt).toBe(1);
    expect(log.position).toMatchObject({ seq: 602, cmd: 599 });
    await after.begun;
    await second.finish(after);
    const messages = await wholeLog(edge, ref);
    const before602 = messages.filter((m) => m.lastSeq <= 602).flatMap(eventsOf);
    expect(log.state).toEqual(before602.reduce(reduce, initialRunState(ref.run)));
    expect(messages.flatMap(eventsOf).map((e) => e.seq)).toEqual(
      Array.from({ length: 604 }, (_, i) => i + 1),
    );
    expect(messages.at(-1)?.attempt).toBe(2);
  });

  test("[QUE5] a takeover begins with the newest snapshot, whatever lines of its message that covers", async () => {
    const agent = freshAgent();
    const first = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await first.given(ref);
    const writer = await work.begun;
    const appends = Array.from({ length: 10 }, (_, i) => writer.append(note(i)));
    await Promise.all(appends);
    // Seven of the twelve events: in the middle of the message that holds the ten.
    const messages = await wholeLog(edge, ref);
    const events = messages.flatMap(eventsOf);
    const state = events.slice(0, 7).reduce(reduce, initialRunState(ref.run));
    await new SnapshotStore(edge).write(ref, {
      state: { ...state, app: { fromSnapshot: true } },
      seq: 7,
      streamSeq: messages.at(-1)!.streamSeq,
      attempt: 1,
      writer: writer.writer,
      epoch: work.claim.epoch,
      cmd: 0,
    });
    await first.die();
    const second = await worker({ agent });
    const after = await second.given(ref);
    expect(after.claim.log!.state).toMatchObject({ seq: 12, app: { fromSnapshot: true } });
  });
  test("[QUE5] a replica that lags delays a takeover and makes no hole", async () => {
    const ref = freshRun();
    const writer = await startedWriter(edge, ref);
    for (let i = 0; i < 5; i += 1) await writer.append(note(i));
    const [q] = await wholeLog(edge, ref);
    if (!q) throw new Error("nothing stored");
    let pages = 0;
    const lagging: RecoverBroker = {
      nc: edge.nc,
      shardOf: (session) => edge.shardOf(session),
      events: {
        read: async (filter, after, limit) => {
          const page = await edge.events.read(filter, after, limit);
          pages += 1;
          // It has one message more at each look, and says that this is all it has.
          return { messages: page.messages.slice(0, 1), end: limit?.upTo === undefined };
        },
      },
    };
    const event = parseQueued(q.body, "q");
    const queued = { streamSeq: q.streamSeq, epoch: q.epoch, event };
    const log = await recover(lagging, new SnapshotStore(edge), ref, queued);
    expect(log).toMatchObject({ state: { seq: 6 }, position: { seq: 6 } });
    expect(pages).toBe(5);
  });

  test("[QUE4] the log decides: a first delivery of a begun run is a takeover, of an ended one is acked", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    const ended = freshRun();
    // Written to before any queue has delivered them.
    await startRun(edge, ref, { agent });
    const begin = async (r: RunRef, terminal: boolean): Promise<void> => {
      const head = await edge.events.last({ kind: "run", ...r }, "leader");
      const writer = openRunWriter(edge, {
        ref: r,
        epoch: head!.epoch,
        attempt: 3,
        worker: "w_gone",
        position: { seq: 1, streamSeq: head!.streamSeq, eSeq: 0, cmd: 0 },
      });
      await writer.append(note(1));
      if (terminal) await writer.append({ type: "run.completed", payload: {} });
    };
    await startRun(edge, ended, { agent });
    await begin(ref, false);
    await begin(ended, true);
    const w = await worker({ agent });
    const work = await w.given(ref);
    expect(work.claim.log).toMatchObject({ attempt: 3, position: { seq: 2 } });
    await work.begun;
    await w.finish(work);
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    expect(w.works.length).toBe(1);
  });

  test("[QUE6] a held run is extended: nobody else gets it however long it takes", async () => {
    const agent = freshAgent();
    const first = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    await first.given(ref);
    const second = await worker({ agent });
    const until = Date.now() + 3 * ACK_WAIT_MS;
    await eventually(() => Date.now() > until);
    const info = await edge.jsm.consumers.info(
      `TL_EV_${edge.shardOf(ref.session)}`,
      `agent_${agent}`,
    );
    expect(info.num_redelivered).toBe(0);
    expect(second.works.length).toBe(0);
  });

  test("[QUE8] [OWN5] a run handed back is another's at once", async () => {
    const agent = freshAgent();
    const first = await worker({ agent, ackWaitMs: 30_000 });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await first.given(ref);
    await (await work.begun).close();
    const second = await worker({ agent, ackWaitMs: 30_000 });
    first.capacity = 0;
    // Still among the worker's own: the queue alone knows that it was handed back.
    await work.claim.handBack();
    const after = await second.given(ref, 3_000);
    expect(after.claim.kind).toBe("takeover");
  });

  test("[QUE9] an abandoned run is not extended any more", async () => {
    const agent = freshAgent();
    const first = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await first.given(ref);
    await work.begun;
    const second = await worker({ agent });
    first.capacity = 0;
    work.claim.abandon();
    await second.given(ref);
  });

  test("[QUE2] no more is taken than there is room for; freed room takes the next at once", async () => {
    const agent = freshAgent();
    const w = await worker({ agent, capacity: 3, ackWaitMs: 5_000 });
    await startRuns(edge, agent, 20);
    await eventually(() => w.works.length === 3);
    const before = await jobsLeft(edge, agent);
    expect(before).toMatchObject({ pending: 3, pulls: 0 });
    for (let done = 0; done < 20; done += 1) {
      const work = await eventually(() => w.works[done]);
      expect(w.held.size).toBeLessThanOrEqual(3);
      await w.finish(work);
    }
    // Nothing was asked for that had to be given back.
    expect(await jobsLeft(edge, agent)).toMatchObject({ pending: 0, waiting: 0, deliveries: 20 });
    expect(w.works.length).toBe(20);
  });
  test("[QUE2] however often it is woken, with room for one it asks for one", async () => {
    const agent = freshAgent();
    const w = await worker({ agent, capacity: 1, ackWaitMs: 5_000 });
    let asked = 0;
    for (let i = 0; i < 30; i += 1) {
      w.queue.wake();
      const { pulls } = await jobsLeft(edge, agent);
      expect(pulls).toBeLessThanOrEqual(1);
      asked += pulls;
    }
    expect(asked).toBeGreaterThan(0);
  });

  test("[QUE3] with room for one, runs of all shards and agents get their turn", async () => {
    const agents = [freshAgent(), freshAgent(), freshAgent()];
    const w = await worker({ agent: agents, capacity: 1 });
    for (const agent of agents) await startRuns(edge, agent, 4);
    for (let done = 0; done < 12; done += 1) {
      const work = await eventually(() => w.works[done]);
      expect(w.held.size).toBe(1);
      await w.finish(work);
    }
    const ofAgent = (agent: string): number =>
      w.works.filter(({ claim }) => claim.agent === agent).length;
    expect(agents.map(ofAgent)).toEqual([4, 4, 4]);
  });

  test("[QUE1] more than 1,000 runs of one agent are active at once", async () => {
    const agent = freshAgent();
    const w = await worker({ agent, onClaim: () => undefined, ackWaitMs: 10_000 });
    await startRuns(edge, agent, 1_500);
    await eventually(() => w.works.length === 1_500, { timeoutMs: 20_000 });
    expect(await jobsLeft(edge, agent)).toMatchObject({ pending: 1_500, waiting: 0 });
    expect(new Set(w.works.map(({ claim }) => claim.ref.run)).size).toBe(1_500);
  });

  test("[QUE7] a finished run whose ack was lost comes again and is acked, not run", async () => {
    const agent = freshAgent();
    const first = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await first.given(ref);
    await (await work.begun).append({ type: "run.completed", payload: {} });
    await first.die(); // before the ack
    const second = await worker({ agent });
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    expect(second.works.length).toBe(0);
  });

  test("[QUE10] stop gives back what came and was not given to the worker; claims stay", async () => {
    const agent = freshAgent();
    let stopped: Promise<void> | undefined;
    const first = await worker({
      agent,
      ackWaitMs: 30_000,
      onGiven: (count) => {
        if (count === 21) stopped = first.queue.stop();
      },
    });
    const kept = freshRun();
    await startRun(edge, kept, { agent });
    const work = await first.given(kept);
    await work.begun;
    // A burst, and a stop in the midst of its delivery.
    const burst = startRuns(edge, agent, 200);
    await eventually(() => stopped !== undefined);
    await stopped;
    const given = first.works.length;
    await burst;
    expect(given).toBeLessThan(201);
    expect((await jobsLeft(edge, agent)).pulls).toBe(0);
    const second = await worker({ agent, ackWaitMs: 30_000 });
    await eventually(() => second.works.length === 201 - given, { timeoutMs: 5_000 });
    expect(first.works.length).toBe(given);
    await first.finish(work);
  });

  test("[QUE13] [INV3] two workers given one fresh run: one writer, the other is fenced", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    const claims: RunClaim[] = [];
    const first = await worker({ agent, onClaim: (claim) => claims.push(claim) });
    await startRun(edge, ref, { agent });
    await eventually(() => claims.length === 1);
    // Its connection stays, but nothing is extended: the job comes to the second, still without events.
    first.held.clear();
    const second = await worker({ agent, onClaim: (claim) => claims.push(claim) });
    claims[0]!.abandon();
    first.capacity = 0;
    await eventually(() => claims.length === 2);
    expect(claims.map((c) => c.kind)).toEqual(["fresh", "fresh"]);
    const outcomes = await Promise.allSettled(
      [first, second].map(async (w, i) => {
        const claim = claims[i]!;
        const writer = openRunWriter(w.broker, {
          ref,
          epoch: claim.epoch,
          attempt: 1,
          worker: w.id,
          position: { seq: 1, streamSeq: claim.streamSeq, eSeq: 0, cmd: 0 },
        });
        await writer.append({ type: "run.started", payload: { attempt: 1, worker: w.id } });
      }),
    );
    expect(outcomes.filter((o) => o.status === "fulfilled").length).toBe(1);
    const refused = outcomes.find((o) => o.status === "rejected");
    expect(refused?.reason).toBeInstanceOf(FencedError);
    expect((await wholeLog(edge, ref)).length).toBe(2);
  });
});
