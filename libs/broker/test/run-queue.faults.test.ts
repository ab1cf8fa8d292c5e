import { eventually, type NatsServer, startNats, tcpProxy } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { RunClaim } from "../src/claim.ts";
import {
  type Broker,
  FencedError,
  type LogMessage,
  openBroker,
  openRunWriter,
  type RunRef,
} from "../src/index.ts";
import { publishAcked } from "../src/publish.ts";
import { eventSubject } from "../src/subjects.ts";
import { eventsOf, freshRun, startRun, wholeLog } from "./harness.ts";
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

async function worker(
  options: Omit<WorkerOptions, "servers"> & { url?: string },
): Promise<TestWorker> {
  const { url = nats.url, ...over } = options;
  const made = await testWorker({ servers: [url], ...over });
  workers.push(made);
  return made;
}

function typesOf(log: readonly LogMessage[]): string[] {
  return log.flatMap(eventsOf).map((event) => event.type);
}

/** Time itself is what is waited for: a lease that runs out. */
function past(ms: number): Promise<unknown> {
  const until = performance.now() + ms;
  return eventually(() => performance.now() > until, { timeoutMs: ms + 10_000 });
}

/** Writes as another worker's next attempt would, without that worker's queue. */
async function takeOver(ref: RunRef, name: string): Promise<void> {
  const last = await edge.events.last({ kind: "run", ...ref }, "leader");
  if (!last) throw new Error(`${ref.run} has no log`);
  const writer = openRunWriter(edge, {
    ref,
    epoch: last.epoch,
    attempt: last.attempt + 1,
    worker: name,
    position: {
      seq: last.lastSeq,
      streamSeq: last.streamSeq,
      eSeq: last.lane === "e" ? last.streamSeq : 0,
      cmd: last.cmd,
    },
  });
  const payload = { attempt: last.attempt + 1, worker: name };
  await writer.append({ type: "run.resumed", payload });
}

describe("the owner check", () => {
  test("[OWN1] [OWN3] [OWN4] an outage longer than ack_wait: each run stays with its worker", async () => {
    const agent = freshAgent();
    const both = [await worker({ agent, capacity: 10 }), await worker({ agent, capacity: 10 })];
    const refs = await startRuns(edge, agent, 20);
    await eventually(() => both.every((w) => w.works.length === 10));
    await Promise.all(both.flatMap((w) => w.works.map((work) => work.begun)));
    // Room for all of the other's runs, if they came.
    for (const w of both) w.capacity = 100;

    await nats.stop();
    await past(2 * ACK_WAIT_MS);
    await nats.restart();

    await eventually(() =>
      [edge, ...both.map((w) => w.broker)].every((b) => b.connection === "up"),
    );
    // The jobs had run out while NATS was away: wait until all were delivered again, or extended.
    await past(4 * ACK_WAIT_MS);
    expect(both.map((w) => w.works.length)).toEqual([10, 10]);
    for (const w of both) for (const work of w.works) await w.finish(work);
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    for (const ref of refs) {
      const log = await wholeLog(edge, ref);
      expect(typesOf(log)).toEqual(["run.queued", "run.started", "run.completed"]);
    }
  });

  test("[OWN3] the first to come back after an outage waits for the owner to come back", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const late = await worker({ agent, url: `nats://${proxy.address}` });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await late.given(ref);
    await work.begun;
    const early = await worker({ agent });
    proxy.refuse();
    await nats.stop();
    await nats.restart();
    await eventually(() => edge.connection === "up");
    const consumer = (): Promise<{ num_redelivered: number }> =>
      edge.jsm.consumers.info(`TL_EV_${edge.shardOf(ref.session)}`, `agent_${agent}`);
    // Nobody is there to answer for the run, and it has been delivered to the early one.
    await eventually(async () => (await consumer()).num_redelivered === 1);
    await past(ACK_WAIT_MS);
    expect(late.broker.connection).toBe("down");
    await proxy.accept();
    await eventually(() => late.broker.connection === "up");
    await past(2 * ACK_WAIT_MS);
    expect(early.works.length).toBe(0);
    await late.finish(work);
    expect((await jobsLeft(edge, agent)).pending).toBe(0);
    proxy.close();
  });

  test("[OWN1] a live owner's run that is delivered to another stays the owner's", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const owner = await worker({ agent, url: `nats://${proxy.address}` });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await owner.given(ref);
    await work.begun;
    owner.capacity = 1;
    const other = await worker({ agent, ownerCheck: { answerMs: 5_000 } });
    // What it says is held up for longer than ack_wait, and comes before the other has its answer.
    proxy.stall();
    const consumer = (): Promise<{ num_redelivered: number }> =>
      edge.jsm.consumers.info(`TL_EV_${edge.shardOf(ref.session)}`, `agent_${agent}`);
    await eventually(async () => (await consumer()).num_redelivered === 1);
    proxy.flow();
    await past(2 * ACK_WAIT_MS);
    expect(other.works.length).toBe(0);
    await owner.finish(work);
    expect((await jobsLeft(edge, agent)).pending).toBe(0);
    proxy.close();
  });

  test("[OWN2] an owner that answers nothing loses the run, and is fenced when it wakes", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const owner = await worker({ agent, url: `nats://${proxy.address}` });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await owner.given(ref);
    const writer = await work.begun;
    const other = await worker({ agent });
    proxy.stall();
    const after = await other.given(ref);
    expect(after.claim.log?.attempt).toBe(1);
    await after.begun;
    proxy.flow();
    await expect(writer.append({ type: "run.completed", payload: {} })).rejects.toThrow(
      FencedError,
    );
    await other.finish(after);
    expect(typesOf(await wholeLog(edge, ref))).toEqual([
      "run.queued",
      "run.started",
      "run.resumed",
      "run.completed",
    ]);
    proxy.close();
  });

  test("[OWN5] a worker that lives and let the run go says so: no waiting for it", async () => {
    const agent = freshAgent();
    const owner = await worker({ agent });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await owner.given(ref);
    await work.begun;
    owner.capacity = 0;
    work.claim.abandon();
    const other = await worker({ agent, ownerCheck: { answerMs: 60_000 } });
    await other.given(ref, 5_000);
  });
});

describe("a run queue under faults", () => {
  test("[QUE12] [INV3] a worker frozen with open pulls costs the runs no attempt", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const frozen = await worker({ agent, url: `nats://${proxy.address}` });
    await eventually(async () => (await jobsLeft(edge, agent)).pulls === 2);
    proxy.stall();
    const refs = await startRuns(edge, agent, 12);
    // Its open pulls have swallowed jobs.
    expect((await jobsLeft(edge, agent)).pending).toBeGreaterThan(0);
    const awake = await worker({ agent });
    await eventually(() => awake.works.length === 12);
    await Promise.all(awake.works.map((work) => work.begun));
    proxy.flow();
    // It wakes and finds its stale deliveries.
    await past(2 * ACK_WAIT_MS);
    for (const work of awake.works) await awake.finish(work);
    expect(frozen.works.length).toBe(0);
    for (const ref of refs) {
      const log = await wholeLog(edge, ref);
      expect(typesOf(log)).toEqual(["run.queued", "run.started", "run.completed"]);
      expect(log.at(-1)?.attempt).toBe(1);
    }
    proxy.close();
  });

  test("[QUE16] a worker that slept past ack_wait learns at once which runs it lost", async () => {
    const agent = freshAgent();
    const w = await worker({ agent, ackWaitMs: 300 });
    const [lost, kept] = [freshRun(), freshRun()];
    for (const ref of [lost, kept]) await startRun(edge, ref, { agent });
    const works = [await w.given(lost), await w.given(kept)];
    await Promise.all(works.map((work) => work.begun));
    await takeOver(lost, "w_other");
    w.capacity = 0;
    // Frozen: the loop does not turn.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    await eventually(() => works[0]?.claim.signal.aborted, { timeoutMs: 1_500 });
    expect(works[0]?.claim.signal.reason).toBeInstanceOf(FencedError);
    expect(works[1]?.claim.signal.aborted).toBe(false);
  });

  test("[QUE16] [INV4] a zombie with nothing to say does not keep its run from the next worker", async () => {
    const agent = freshAgent();
    const zombie = await worker({ agent, ackWaitMs: 200 });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await zombie.given(ref);
    await work.begun;
    zombie.capacity = 0;
    // Cut off from the others and not noticing; the one that took over dies.
    await takeOver(ref, "w_dead");
    const next = await worker({ agent, ackWaitMs: 200 });
    const after = await next.given(ref);
    expect(after.claim.log?.attempt).toBe(2);
    expect(work.claim.signal.aborted).toBe(true);
  });

  test("[QUE16] a reconnect compares with the log as well", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const w = await worker({ agent, url: `nats://${proxy.address}`, ackWaitMs: 60_000 });
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const work = await w.given(ref);
    await work.begun;
    await takeOver(ref, "w_other");
    proxy.cut();
    await eventually(() => work.claim.signal.aborted);
    proxy.close();
  });

  test("[QUE11] a consumer that an operator deletes is made anew, and runs go on", async () => {
    const agent = freshAgent();
    const w = await worker({ agent });
    for (const stream of ["TL_EV_0", "TL_EV_1"])
      await edge.jsm.consumers.delete(stream, `agent_${agent}`);
    const refs = await startRuns(edge, agent, 6);
    await eventually(() => refs.every((ref) => w.of(ref).length > 0));
    expect(w.warnings.some((text) => /consumer deleted|nobody answers/i.test(text))).toBe(true);
    expect(w.fatal).toEqual([]);
  });

  test("[QUE11] a consumer that cannot serve surfaces, and says what to do", async () => {
    const agent = freshAgent();
    await edge.jsm.consumers.add("TL_EV_1", {
      durable_name: `agent_${agent}`,
      ack_policy: "none",
      deliver_policy: "all",
      replay_policy: "instant",
      filter_subject: `tl.ev.1.*.*.*.q.${agent}`,
    });
    await expect(worker({ agent })).rejects.toThrow("nats consumer rm TL_EV_1");
  });

  test("[QUE14] [INV3] a job whose run id was used by another incarnation is never claimed", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    const job = await edge.events.queued(ref);
    // A writer of an earlier incarnation; ours would be fenced (WRT10), another language's may not be.
    const old = openRunWriter(edge, {
      ref,
      epoch: "older",
      attempt: 1,
      worker: "w_old",
      position: { seq: 1, streamSeq: job?.streamSeq ?? 0, eSeq: 0, cmd: 0 },
    });
    await old.append({ type: "run.started", payload: { attempt: 1, worker: "w_old" } });
    const w = await worker({ agent });
    await eventually(() => w.warnings.some((text) => text.includes("epoch older")));
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    expect(w.works.length).toBe(0);
  });

  test("[QUE14] a delivery that its process slept on is not claimed once its job was stored anew", async () => {
    const agent = freshAgent();
    const proxy = await tcpProxy({ port: nats.port });
    const sleeper = await worker({ agent, url: `nats://${proxy.address}` });
    await eventually(async () => (await jobsLeft(edge, agent)).pulls === 2);
    proxy.stall();
    const ref = freshRun();
    await startRun(edge, ref, { agent });
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 1);
    // Its retention is over, and the same start comes again.
    const shard = edge.shardOf(ref.session);
    await edge.jsm.streams.purge(`TL_EV_${shard}`, { filter: eventSubject.anyOfRun(ref, shard) });
    await startRun(edge, ref, { agent });
    const stored = await edge.events.last({ kind: "run", ...ref }, "leader");
    proxy.flow();
    const claims = (): RunClaim[] => sleeper.works.map(({ claim }) => claim);
    await eventually(() => claims().length > 0);
    expect(claims().map((claim) => claim.epoch)).toEqual([stored?.epoch]);
    expect(sleeper.warnings.some((text) => text.includes("not the stored one"))).toBe(true);
    proxy.close();
  });

  test("[QUE15] a claim of a stream that was made anew does not ack the stranger in its place", async () => {
    const agent = freshAgent();
    const own = await startNats();
    const broker = await openBroker({ servers: [own.url], name: "edge", shards: 1 });
    const w = await testWorker({ servers: [own.url], agent, shards: 1, onClaim: () => undefined });
    const ref = freshRun();
    await startRun(broker, ref, { agent });
    const { claim } = await w.given(ref);
    const { config } = await broker.jsm.streams.info("TL_EV_0");
    await broker.jsm.streams.delete("TL_EV_0");
    await broker.jsm.streams.add(config);
    const stranger = freshRun();
    await startRun(broker, stranger, { agent });
    await w.given(stranger);
    await claim.ack();
    expect(w.warnings.some((text) => text.includes("another job is stored"))).toBe(true);
    expect((await jobsLeft(broker, agent)).pending).toBe(1);
    await w.die();
    await broker.close();
    await own.dispose();
  });

  test("[QUE5] a log that contradicts itself is left alone, and told", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    const started = await startRun(edge, ref, { agent });
    if (started.outcome !== "stored") throw new Error("not started");
    const shard = edge.shardOf(ref.session);
    const body = Buffer.from("{}");
    await publishAcked(
      edge.nc,
      eventSubject.e(ref, shard),
      body,
      { "Tl-Seq": 9, "Tl-Last": 9, "Tl-Prev": started.streamSeq, "Tl-Epoch": started.epoch },
      2_000,
    );
    const w = await worker({ agent });
    await eventually(() => w.warnings.some((text) => text.includes("could not be taken up")));
    expect(w.works.length).toBe(0);
  });
});
