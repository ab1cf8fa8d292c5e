import type { Broker } from "./broker.ts";
import { type Hand, handKey, type RunClaim } from "./claim.ts";
import type { JobConsumer } from "./consumer.ts";
import { decide, type Deciding, type Found } from "./decide.ts";
import type { Delivery } from "./delivery.ts";
import { type BrokerMisfit, BrokerUnavailable } from "./errors.ts";
import { Hands } from "./hands.ts";
import { H } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { JobLanes } from "./job-lanes.ts";
import {
  answerOwnerChecks,
  OwnerCheck,
  type OwnerCheckOptions,
  type OwnerQuestion,
} from "./owner-check.ts";
import { parseQueued, type QueuedRun, type RecoveredRun } from "./recover.ts";
import { SnapshotStore } from "./snapshot-store.ts";
import { parseEventSubject, queueFilter, streamName } from "./subjects.ts";

export interface RunQueueOptions {
  /** Agents of one worker belong into one queue: they share its room. */
  readonly agent: string | readonly string[];
  /** Id of this worker process, never used again by another one: it stands in the log. */
  readonly worker: string;
  /** Free places. Jobs whose log is being read are counted by the queue, claims by the worker. */
  readonly room: () => number;
  /** After so long without "in progress" a job goes to another worker, in ms. */
  readonly ackWaitMs: number;
  /** Must take the claim: from here on the run is the worker's. */
  readonly onRun: (claim: RunClaim) => void;
  /** Does the worker still write to this run? Asked for claims that were given to it. */
  readonly owns: (ref: RunRef, epoch: string) => boolean;
  readonly ownerCheck?: OwnerCheckOptions;
  /** Faults that the queue deals with by itself. */
  readonly onWarning?: (text: string, cause?: unknown) => void;
  /** What only an operator can mend; jobs of that agent and shard are not taken. */
  readonly onFatal?: (error: BrokerMisfit) => void;
}

/** A pull's expiry: a frozen worker's open pulls swallow redeliveries until then. */
const EXPIRES_CAP_MS = 5_000;
const EXPIRES_LEAST_MS = 250;
/** Before a job is tried again whose log could not be read. */
const RETRY_MS = 1_000;
/** A log that contradicts itself does not heal by itself; the sweep ends the run. */
const CORRUPT_RETRY_MS = 30_000;

/** Durable name of the consumer of one agent kind, one on each shard's stream. */
const queueConsumer = (agent: string): string => `agent_${agent}`;

/**
 * Gives a worker the runs of its agents: new ones, and those whose worker died. The delivery
 * only says where to look; what a run is, its log says, read through the leader.
 */
export class RunQueue {
  /** All consumers are there. Rejects with BrokerMisfit if one cannot serve. */
  readonly ready: Promise<void>;
  readonly #options: RunQueueOptions;
  readonly #lanes: JobLanes;
  readonly #hands: Hands;
  readonly #ownerCheck: OwnerCheck;
  readonly #deciding: Deciding;
  readonly #answers: { close(): void };
  #phase: "open" | "stopping" | "closed" = "open";

  constructor(broker: Broker, options: RunQueueOptions) {
    this.#options = options;
    const { worker, ackWaitMs } = options;
    const agents = typeof options.agent === "string" ? [options.agent] : options.agent;
    this.#hands = new Hands({
      broker,
      worker,
      ackWaitMs,
      onWarning: (text, cause) => this.#warn(text, cause),
      onLeft: () => this.#left(),
    });
    this.#ownerCheck = new OwnerCheck(broker, options.ownerCheck);
    const snapshots = new SnapshotStore(broker);
    this.#deciding = { broker, snapshots, ownerCheck: this.#ownerCheck, worker };
    this.#answers = answerOwnerChecks(broker.nc, worker, new Set(agents), (question) =>
      this.#holds(question),
    );
    this.#lanes = new JobLanes({
      broker,
      jobs: agents.flatMap((agent) => jobsOf(agent, broker.shards, ackWaitMs)),
      expiresMs: Math.max(EXPIRES_LEAST_MS, Math.min(EXPIRES_CAP_MS, ackWaitMs / 3)),
      room: () => this.#free(),
      onDelivery: (delivery) => this.#take(delivery),
      onWarning: (text, cause) => this.#warn(text, cause),
      onFatal: options.onFatal ?? ((error) => this.#warn(error.message, error)),
    });
    this.ready = this.#lanes.ready;
  }

  /** Room may have been freed. Not needed after a claim's own ways out. */
  wake(): void {
    this.#lanes.wake();
  }

  /**
   * Takes no more jobs and gives back at once what had come and was not given to the worker.
   * Claims stay the worker's, extended and answered for, until it acks or hands them back.
   */
  async stop(): Promise<void> {
    if (this.#phase !== "open") return;
    this.#phase = "stopping";
    await this.#lanes.stop();
    this.#hands.giveBackUndecided();
    await this.#hands.settled();
    this.#left();
  }

  #free(): number {
    return this.#options.room() - this.#hands.deciding;
  }

  #holds(question: OwnerQuestion): boolean {
    const hand = this.#hands.get(handKey(question, question.epoch));
    return hand?.phase === "claimed" && this.#options.owns(hand.ref, hand.epoch);
  }

  #warn(text: string, cause?: unknown): void {
    this.#options.onWarning?.(text, cause);
  }

  #take(delivery: Delivery): void {
    const address = parseEventSubject(delivery.subject);
    if (!address?.agent) {
      this.#warn(`${delivery.subject} is no job`);
      return;
    }
    const { tenant, session, run, agent } = address;
    const ref = { tenant, session, run };
    const epoch = delivery.headers.get(H.epoch);
    const key = handKey(ref, epoch);
    const held = this.#hands.get(key);
    if (held) {
      this.#hands.keep(held, delivery);
      return;
    }
    const hand: Hand = {
      key,
      ref,
      agent,
      epoch,
      streamSeq: delivery.streamSeq,
      delivery,
      phase: "deciding",
      base: 0,
      lost: new AbortController(),
    };
    if (this.#phase !== "open" || this.#free() <= 0) {
      void this.#hands.giveBack(hand);
      return;
    }
    this.#hands.take(hand);
    void this.#decide(hand);
  }

  async #decide(hand: Hand): Promise<void> {
    let found: Found;
    let queued: QueuedRun;
    try {
      const where = `${hand.delivery.subject} at ${hand.streamSeq}`;
      const { epoch, streamSeq } = hand;
      queued = { epoch, streamSeq, event: parseQueued(hand.delivery.body, where) };
      found = await decide(this.#deciding, hand, queued);
    } catch (error) {
      if (!this.#hands.has(hand)) return;
      this.#warn(`${hand.ref.run} could not be taken up yet`, error);
      const passing = error instanceof BrokerUnavailable;
      void this.#hands.giveBack(hand, passing ? RETRY_MS : CORRUPT_RETRY_MS);
      return;
    }
    if (!this.#hands.has(hand)) return; // given back meanwhile
    switch (found.kind) {
      case "owned":
        this.#hands.drop(hand);
        return;
      case "over":
        if (found.warning !== undefined) this.#warn(`${hand.ref.run}: ${found.warning}`);
        void this.#hands.ack(hand);
        return;
      case "fresh":
        this.#give(hand, queued, undefined);
        return;
      case "takeover":
        this.#give(hand, queued, found.log);
    }
  }

  #give(hand: Hand, queued: QueuedRun, log: RecoveredRun | undefined): void {
    this.#hands.claim(hand, log?.position.eSeq ?? 0);
    const { ref, agent, epoch, streamSeq } = hand;
    const leave = async (way: () => Promise<void>): Promise<void> => {
      if (hand.phase !== "claimed" || !this.#hands.has(hand)) return;
      await way();
    };
    const claim: RunClaim = {
      ref,
      agent,
      epoch,
      streamSeq,
      queued: queued.event,
      kind: log ? "takeover" : "fresh",
      ...(log ? { log } : {}),
      signal: hand.lost.signal,
      ack: () => leave(() => this.#hands.ackClaim(hand)),
      handBack: () => leave(() => this.#hands.giveBack(hand)),
      abandon: () => {
        if (hand.phase === "claimed" && this.#hands.has(hand)) this.#hands.drop(hand);
      },
    };
    try {
      this.#options.onRun(claim);
    } catch (error) {
      this.#warn(`the worker did not take ${ref.run}`, error);
      if (hand.phase === "claimed") void this.#hands.giveBack(hand, RETRY_MS);
    }
    this.wake();
  }

  /** A job left our hands: there may be room, or, after a stop, nothing left to do. */
  #left(): void {
    if (this.#phase === "open") {
      this.wake();
      return;
    }
    if (this.#phase === "closed" || !this.#hands.isEmpty) return;
    this.#phase = "closed";
    this.#hands.close();
    this.#ownerCheck.close();
    this.#answers.close();
  }
}

function jobsOf(agent: string, shards: number, ackWaitMs: number): JobConsumer[] {
  return Array.from({ length: shards }, (_, shard) => ({
    stream: streamName.events(shard),
    name: queueConsumer(agent),
    filter: queueFilter(shard, agent),
    ackWaitMs,
  }));
}

/** Begins to take jobs as soon as the consumers are there; see `ready`. */
export function openRunQueue(broker: Broker, options: RunQueueOptions): RunQueue {
  return new RunQueue(broker, options);
}
