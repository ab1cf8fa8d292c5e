import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { AgentDirectory } from "../src/agent-directory.ts";
import {
  bodyHash,
  type Broker,
  BrokerMisfit,
  openBroker,
  openRunWriter,
  type RunRef,
} from "../src/index.ts";
import { checkRetention } from "../src/retention.ts";
import { openSweep, type Sweep, type SweepOptions } from "../src/sweep.ts";
import { eventsOf, freshRun, note, wholeLog } from "./harness.ts";
import { ACK_WAIT_MS, freshAgent, jobsLeft, type TestWorker, testWorker } from "./queue-harness.ts";

const TTL_MS = 600;
const QUEUE_TIMEOUT_MS = 300;
const GRACE_MS = 200;
const TAKE_UP_MS = 200;

let nats: NatsServer;
let edge: Broker;
const closing: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  nats = await startNats();
  edge = await openBroker({ servers: [nats.url], name: "edge", shards: 2 });
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});
afterAll(async () => {
  await edge.close();
  await nats.dispose();
});

async function start(ref: RunRef, agent: string, deadlineMs: number, broker = edge): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  const payload = { agent, input: 1, by: "ann", deadline };
  const hash = bodyHash(payload);
  await broker.events.start({ ref, agent, user: "ann", commandId: "c1", hash, deadline, payload });
}

async function sweep(
  over: Partial<SweepOptions> = {},
  broker = edge,
): Promise<{ sweep: Sweep; warnings: string[] }> {
  const warnings: string[] = [];
  const made = openSweep(broker, {
    worker: "w_sweep",
    queueTimeoutMs: QUEUE_TIMEOUT_MS,
    ackWaitMs: ACK_WAIT_MS,
    graceMs: GRACE_MS,
    takeUpMs: TAKE_UP_MS,
    agents: new AgentDirectory(broker, { ttlMs: TTL_MS }),
    onWarning: (text) => warnings.push(text),
    ...over,
  });
  closing.push(() => made.stop());
  await made.ready;
  return { sweep: made, warnings };
}

async function worker(agent: string, capacity?: number): Promise<TestWorker> {
  const made = await testWorker({
    servers: [nats.url],
    agent,
    ...(capacity === undefined ? {} : { capacity }),
  });
  closing.push(async () => {
    await made.queue.stop();
    for (const { claim } of made.works) claim.abandon();
    await made.die();
  });
  return made;
}

function offer(agent: string): { stop(): Promise<void> } {
  const directory = new AgentDirectory(edge, { ttlMs: TTL_MS });
  const offered = directory.announce({ agent, description: "", examples: [], worker: "w_1" });
  closing.push(() => offered.stop());
  return offered;
}

async function ended(ref: RunRef, timeoutMs = 10_000, broker = edge): Promise<unknown[]> {
  await eventually(async () => (await broker.events.last({ kind: "run", ...ref }, "leader"))?.end, {
    timeoutMs,
    what: `${ref.run} has ended`,
  });
  return (await wholeLog(broker, ref))
    .flatMap(eventsOf)
    .map((e) => (e.type === "run.failed" ? `${e.type} ${e.payload.code}` : e.type));
}

async function leftToSweep(broker = edge): Promise<number> {
  let left = 0;
  for (let shard = 0; shard < broker.shards; shard += 1) {
    const info = await broker.jsm.consumers.info(`TL_EV_${shard}`, "sweep");
    left += info.num_pending + info.num_ack_pending;
  }
  return left;
}

describe("the sweep", () => {
  test("[SWP2] [INV4] a run whose agent nobody offers fails with agent_unavailable", async () => {
    const agent = freshAgent();
    const refs = Array.from({ length: 12 }, () => freshRun());
    for (const ref of refs) await start(ref, agent, 60_000);
    await sweep();
    const startedAt = Date.now();
    for (const ref of refs) {
      expect(await ended(ref)).toEqual(["run.queued", "run.failed agent_unavailable"]);
    }
    // The absence was confirmed once, not for each of the twelve.
    expect(Date.now() - startedAt).toBeLessThan(QUEUE_TIMEOUT_MS + 6 * TTL_MS);
    await eventually(async () => (await leftToSweep()) === 0);
  });

  test("[SWP2] an agent that is offered and busy is waited for, until the deadline", async () => {
    const agent = freshAgent();
    offer(agent);
    await worker(agent, 0);
    const ref = freshRun();
    const deadline = Date.now() + 2_500;
    await start(ref, agent, 2_500);
    await sweep();
    expect(await ended(ref)).toEqual(["run.queued", "run.failed deadline"]);
    expect(Date.now()).toBeGreaterThanOrEqual(deadline);
  });
  test("[SWP2] an agent missing at one look only is not taken for gone", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    await start(ref, agent, 60_000);
    let looks = 0;
    const offered = (asked: string): Promise<boolean> =>
      Promise.resolve(asked !== agent || (looks += 1) > 1);
    await sweep({ agents: { ttlMs: TTL_MS, offered } });
    await eventually(() => looks > 2);
    expect((await edge.events.last({ kind: "run", ...ref }, "leader"))?.lane).toBe("q");
  });

  test("[SWP2] announcements that lapsed in an outage are waited for", async () => {
    const own = await startNats();
    const broker = await openBroker({ servers: [own.url], name: "own", shards: 1 });
    const agent = freshAgent();
    const agents = new AgentDirectory(broker, { ttlMs: TTL_MS });
    const offered = agents.announce({ agent, description: "", examples: [], worker: "w" });
    await eventually(() => agents.offered(agent));
    const ref = freshRun();
    await start(ref, agent, 60_000, broker);
    const { sweep: made } = await sweep({ agents }, broker);
    await own.stop();
    const back = Date.now() + 2 * TTL_MS;
    await eventually(() => Date.now() > back);
    await own.restart();
    await eventually(() => broker.connection === "up");
    await eventually(() => agents.offered(agent));
    const until = Date.now() + 4 * TTL_MS;
    await eventually(() => Date.now() > until);
    expect((await broker.events.last({ kind: "run", ...ref }, "leader"))?.lane).toBe("q");
    await offered.stop();
    await made.stop();
    await broker.close();
    await own.dispose();
  });

  test("[SWP3] [INV4] a run picked up and then lost by every worker fails at its deadline", async () => {
    const agent = freshAgent();
    const w = await testWorker({ servers: [nats.url], agent });
    const ref = freshRun();
    await start(ref, agent, 2_000);
    await sweep();
    const work = await w.given(ref);
    const writer = await work.begun;
    await writer.append(note("half way"), { cmd: 4 });
    await w.die();
    expect(await ended(ref)).toEqual([
      "run.queued",
      "run.started",
      "custom",
      "run.failed deadline",
    ]);
    const log = await wholeLog(edge, ref);
    const [before, terminal] = log.slice(-2);
    expect(terminal).toMatchObject({
      prev: before?.streamSeq,
      attempt: 2,
      cmd: 4,
      epoch: before?.epoch,
      end: true,
    });
  });

  test("[SWP3] [INV3] a live worker past the deadline is fenced", async () => {
    const agent = freshAgent();
    const w = await worker(agent);
    const ref = freshRun();
    await start(ref, agent, 1_000);
    await sweep();
    const work = await w.given(ref);
    const writer = await work.begun;
    expect(await ended(ref)).toEqual(["run.queued", "run.started", "run.failed deadline"]);
    await expect(writer.append(note(1))).rejects.toThrow("our");
  });
  test("[SWP3] [QUE16] a worker lets go of a run that its own sweep has ended", async () => {
    const agent = freshAgent();
    const w = await testWorker({ servers: [nats.url], agent, ackWaitMs: 200 });
    closing.push(() => w.die());
    const ref = freshRun();
    await start(ref, agent, 600);
    await sweep({ worker: w.id, ackWaitMs: 200 });
    // It waits for somebody's answer and appends nothing.
    const work = await w.given(ref);
    await work.begun;
    await eventually(() => work.claim.signal.aborted);
    await eventually(async () => (await jobsLeft(edge, agent)).pending === 0);
    expect(w.works.length).toBe(1);
    await w.queue.stop();
  });

  test("[SWP1] finished runs are passed by; several sweeps share the work", async () => {
    const agent = freshAgent();
    const w = await worker(agent);
    // Long enough for all to finish before they are due.
    const { warnings } = await sweep({ queueTimeoutMs: 2_000 });
    await sweep({ queueTimeoutMs: 2_000 });
    await sweep({ queueTimeoutMs: 2_000 });
    const refs = Array.from({ length: 30 }, () => freshRun());
    await Promise.all(refs.map((ref) => start(ref, agent, 60_000)));
    for (const ref of refs) await w.finish(await w.given(ref));
    await eventually(async () => (await leftToSweep()) === 0, { timeoutMs: 15_000 });
    for (const ref of refs) {
      expect(await ended(ref)).toEqual(["run.queued", "run.started", "run.completed"]);
    }
    expect(warnings).toEqual([]);
  });

  test("[SWP6] stop gives back what is held, at once", async () => {
    const agent = freshAgent();
    offer(agent);
    const { sweep: first } = await sweep({ queueTimeoutMs: 60_000, ackWaitMs: 30_000 });
    const ref = freshRun();
    await start(ref, agent, 600);
    const held = async (): Promise<number> => {
      const info = await edge.jsm.consumers.info(`TL_EV_${edge.shardOf(ref.session)}`, "sweep");
      return info.num_ack_pending - info.num_redelivered;
    };
    await eventually(async () => (await held()) > 0);
    await first.stop();
    await sweep({ ackWaitMs: 30_000 });
    expect(await ended(ref, 3_000)).toEqual(["run.queued", "run.failed deadline"]);
  });

  test("[SWP5] [INV4] a run that outlives its job's retention fails by its deadline all the same", async () => {
    const own = await startNats();
    const broker = await openBroker({
      servers: [own.url],
      name: "own",
      shards: 1,
      eventsMaxAgeMs: 1_500,
    });
    const agent = freshAgent();
    const servers = [own.url];
    const w = await testWorker({ servers, agent, shards: 1, eventsMaxAgeMs: 1_500 });
    const { sweep: made } = await sweep({}, broker);
    const ref = freshRun();
    const deadline = Date.now() + 3_000;
    await start(ref, agent, 3_000, broker);
    const work = await w.given(ref);
    const writer = await work.begun;
    // At work until its job has expired, then dead: nothing will deliver it again.
    await eventually(
      async () => {
        await writer.append(note(1));
        const jobs = { subjects_filter: "tl.ev.0.*.*.*.q.*" };
        const { state } = await broker.jsm.streams.info("TL_EV_0", jobs);
        return Object.keys(state.subjects ?? {}).length === 0;
      },
      { everyMs: 100 },
    );
    await w.die();
    await eventually(async () => {
      const last = await broker.events.last({ kind: "run", ...ref }, "leader");
      return last?.end && eventsOf(last).at(-1)?.type === "run.failed";
    });
    expect(Date.now()).toBeGreaterThanOrEqual(deadline);
    await made.stop();
    await broker.close();
    await own.dispose();
  });

  test("[SWP4] what another incarnation left unfinished is ended at the job's deadline", async () => {
    const agent = freshAgent();
    const ref = freshRun();
    await start(ref, agent, 1_200);
    const job = await edge.events.queued(ref);
    const old = openRunWriter(edge, {
      ref,
      epoch: "older",
      attempt: 1,
      worker: "w_old",
      position: { seq: 1, streamSeq: job?.streamSeq ?? 0, eSeq: 0, cmd: 0 },
    });
    await old.append({ type: "run.started", payload: { attempt: 1, worker: "w_old" } });
    await sweep();
    await ended(ref);
    const last = await edge.events.last({ kind: "run", ...ref }, "leader");
    expect(last).toMatchObject({ epoch: "older", firstSeq: 3, attempt: 2 });
    await expect(old.append(note(1))).rejects.toThrow("our");
  });

  test("[SWP7] a start-up with retention under twice the deadline is refused, unless allowed", async () => {
    const week = 7 * 24 * 60 * 60_000;
    await checkRetention(edge, { deadlineMs: week / 2 });
    await expect(checkRetention(edge, { deadlineMs: week / 2 + 1 })).rejects.toThrow(BrokerMisfit);
    await checkRetention(edge, { deadlineMs: week, allowShortRetention: true });
  });
});
