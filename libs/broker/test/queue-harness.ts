import { randomBytes } from "node:crypto";
import { eventually } from "@throughline/testkit";
import {
  type Broker,
  openBroker,
  openRunWriter,
  type RunRef,
  type RunWriter,
} from "../src/index.ts";
import { openRunQueue, type RunQueue, type RunQueueOptions } from "../src/run-queue.ts";
import type { RunClaim } from "../src/claim.ts";
import { freshRun, startRun } from "./harness.ts";

export const ACK_WAIT_MS = 600;

/** An agent nobody else has, so that tests can share streams. */
export function freshAgent(): string {
  return `agent_${randomBytes(4).toString("hex")}`;
}

export interface Work {
  readonly claim: RunClaim;
  /** After `run.started` or `run.resumed` is stored, or refused. */
  readonly begun: Promise<RunWriter>;
}

export interface TestWorker {
  readonly id: string;
  readonly broker: Broker;
  readonly queue: RunQueue;
  /** Claims in the order in which they came. */
  readonly works: Work[];
  readonly warnings: string[];
  readonly fatal: Error[];
  capacity: number;
  /** Runs given to it and not ended, handed back or lost. */
  readonly held: Set<string>;
  of(ref: RunRef): Work[];
  /** Waits until the run is given to it. */
  given(ref: RunRef, timeoutMs?: number): Promise<Work>;
  /** The process is gone: its connection closes without a word. */
  die(): Promise<void>;
  /** Appends the terminal and acks. */
  finish(work: Work): Promise<void>;
}

export interface WorkerOptions extends Partial<RunQueueOptions> {
  readonly agent: string | readonly string[];
  readonly servers: readonly string[];
  readonly shards?: number;
  readonly replicas?: number;
  readonly eventsMaxAgeMs?: number;
  readonly capacity?: number;
  /** Called with each claim instead of beginning the run. */
  readonly onClaim?: (claim: RunClaim) => void;
  /** Called with the number of claims so far, in the turn in which the last came. */
  readonly onGiven?: (count: number) => void;
}

/** A worker that begins every run it is given and then waits: what a test does with it decides. */
export async function testWorker(options: WorkerOptions): Promise<TestWorker> {
  const { servers, shards = 2, replicas = 1, eventsMaxAgeMs, ...rest } = options;
  const { capacity = 10_000, onClaim, onGiven, ...over } = rest;
  const id = `w_${randomBytes(4).toString("hex")}`;
  const age = eventsMaxAgeMs === undefined ? {} : { eventsMaxAgeMs };
  const broker = await openBroker({ servers, name: id, shards, replicas, ...age });
  const held = new Set<string>();
  const works: Work[] = [];
  const warnings: string[] = [];
  const fatal: Error[] = [];
  const worker = { capacity };
  const queue = openRunQueue(broker, {
    worker: id,
    ackWaitMs: ACK_WAIT_MS,
    room: () => worker.capacity - held.size,
    owns: (ref, epoch) => held.has(`${ref.run}.${epoch}`),
    onRun: (claim) => {
      held.add(`${claim.ref.run}.${claim.epoch}`);
      claim.signal.addEventListener("abort", () => held.delete(`${claim.ref.run}.${claim.epoch}`));
      if (onClaim) onClaim(claim);
      const begun = onClaim ? Promise.reject(new Error("not begun")) : begin(broker, id, claim);
      // With `onClaim` the test alone decides; a fenced beginning is lost.
      begun.catch(() => {
        if (onClaim) return;
        claim.abandon();
        held.delete(`${claim.ref.run}.${claim.epoch}`);
      });
      works.push({ claim, begun });
      onGiven?.(works.length);
    },
    onWarning: (text, cause) => {
      warnings.push(cause instanceof Error ? `${text}: ${cause.message}` : text);
    },
    onFatal: (error) => fatal.push(error),
    ...over,
  });
  const of = (ref: RunRef): Work[] => works.filter((work) => work.claim.ref.run === ref.run);
  await queue.ready;
  return Object.assign(worker, {
    id,
    broker,
    queue,
    works,
    warnings,
    fatal,
    held,
    of,
    given: (ref: RunRef, timeoutMs = 10_000) =>
      eventually(() => of(ref).at(-1), { timeoutMs, what: `${ref.run} is given to ${id}` }),
    die: () => broker.close(),
    finish: async (work: Work) => {
      const writer = await work.begun;
      await writer.append({ type: "run.completed", payload: {} });
      held.delete(`${work.claim.ref.run}.${work.claim.epoch}`);
      await work.claim.ack();
    },
  });
}

async function begin(broker: Broker, worker: string, claim: RunClaim): Promise<RunWriter> {
  const attempt = (claim.log?.attempt ?? 0) + 1;
  const writer = openRunWriter(broker, {
    ref: claim.ref,
    epoch: claim.epoch,
    attempt,
    worker,
    position: claim.log?.position ?? { seq: 1, streamSeq: claim.streamSeq, eSeq: 0, cmd: 0 },
  });
  const type = claim.kind === "fresh" ? "run.started" : "run.resumed";
  await writer.append({ type, payload: { attempt, worker } });
  return writer;
}

/** Starts `count` runs of one agent, each in a session of its own, so that all shards have some. */
export async function startRuns(broker: Broker, agent: string, count: number): Promise<RunRef[]> {
  const refs = Array.from({ length: count }, () => freshRun());
  await Promise.all(refs.map((ref) => startRun(broker, ref, { agent })));
  return refs;
}

/** Unacked and undelivered jobs, open pulls, and deliveries so far, of one agent over all shards. */
export async function jobsLeft(
  broker: Broker,
  agent: string,
): Promise<{ pending: number; waiting: number; pulls: number; deliveries: number }> {
  let [pending, waiting, pulls, deliveries] = [0, 0, 0, 0];
  for (let shard = 0; shard < broker.shards; shard += 1) {
    const info = await broker.jsm.consumers.info(`TL_EV_${shard}`, `agent_${agent}`);
    pending += info.num_ack_pending;
    waiting += info.num_pending;
    pulls += info.num_waiting;
    deliveries += info.delivered.consumer_seq;
  }
  return { pending, waiting, pulls, deliveries };
}
