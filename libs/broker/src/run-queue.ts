import type { Broker } from "./broker.ts";
import { type Hand, handKey, type RunClaim } from "./claim.ts";
import type { JobConsumer } from "./consumer.ts";
import { confirm, type Delivery, InProgress, nakOf, say } from "./delivery.ts";
import { type BrokerMisfit, BrokerUnavailable } from "./errors.ts";
import { H } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { JobLanes } from "./job-lanes.ts";
import { leaderReadPatiently } from "./leader-read.ts";
import {
  answerOwnerChecks,
  OwnerCheck,
  type OwnerCheckOptions,
  type OwnerQuestion,
} from "./owner-check.ts";
import { parseQueued, type QueuedRun, recover, type RecoveredRun } from "./recover.ts";
import { SnapshotStore } from "./snapshot-store.ts";
import { readStanding, standingVerdict } from "./standing.ts";
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
/** A stop while NATS is away must not take longer; the job goes on after `ack_wait` then. */
const GIVE_BACK_MS = 5_000;
/** A log that contradicts itself does not heal by itself; the sweep ends the run. */
const CORRUPT_RETRY_MS = 30_000;

/** Durable name of the consumer of one agent kind, one on each shard's stream. */
export const queueConsumer = (agent: string): string => `agent_${agent}`;

type Found =
  | { readonly kind: "fresh" }
  | { readonly kind: "takeover"; readonly log: RecoveredRun }
  /** Nothing to do any more: acked. */
  | { readonly kind: "over"; readonly warning?: string }
  /** Its owner lives: neither ack nor nak, so that the owner's token goes on extending it. */
  | { readonly kind: "owned" };

/**
 * Gives a worker the runs of its agents: new ones, and those whose worker died. The delivery
 * only says where to look; what a run is, its log says, read through the leader.
 */
export class RunQueue {
  /** All consumers are there. Rejects with BrokerMisfit if one cannot serve. */
  readonly ready: Promise<void>;
  readonly #broker: Broker;
  readonly #options: RunQueueOptions;
  readonly #lanes: JobLanes;
  readonly #progress: InProgress;
  readonly #ownerCheck: OwnerCheck;
  readonly #answers: { close(): void };
  readonly #snapshots: SnapshotStore;
  readonly #unwatch: () => void;
  readonly #hands: Map<string, Hand> = new Map();
  readonly #givingBack: Set<Promise<void>> = new Set();
  #phase: "open" | "stopping" | "closed" = "open";

  constructor(broker: Broker, options: RunQueueOptions) {
    this.#broker = broker;
    this.#options = options;
    const agents = typeof options.agent === "string" ? [options.agent] : options.agent;
    this.#snapshots = new SnapshotStore(broker);
    this.#progress = new InProgress(broker.nc, options.ackWaitMs);
    this.#ownerCheck = new OwnerCheck(broker, options.ownerCheck);
    this.#answers = answerOwnerChecks(broker.nc, options.worker, new Set(agents), (question) =>
      this.#holds(question),
    );
    this.#unwatch = broker.onConnection((state) => {
      if (state === "up") this.#progress.beat();
    });
    this.#lanes = new JobLanes({
      broker,
      jobs: agents.flatMap((agent) => jobsOf(agent, broker.shards, options.ackWaitMs)),
      expiresMs: Math.max(EXPIRES_LEAST_MS, Math.min(EXPIRES_CAP_MS, options.ackWaitMs / 3)),
      room: () => this.#free(),
      onDelivery: (delivery) => this.#take(delivery),
      onWarning: (text, cause) => this.#warn(text, cause),
      onFatal: (error) => options.onFatal?.(error),
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
    for (const hand of this.#hands.values()) {
      if (hand.phase === "deciding") void this.#giveBack(hand);
    }
    await Promise.all(this.#givingBack);
    this.#closeIfEmpty();
  }

  #free(): number {
    let deciding = 0;
    for (const hand of this.#hands.values()) if (hand.phase === "deciding") deciding += 1;
    return this.#options.room() - deciding;
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
      this.#keep(held, delivery);
      return;
    }
    const { streamSeq } = delivery;
    const hand: Hand = { key, ref, agent, epoch, streamSeq, delivery, phase: "deciding" };
    if (this.#phase !== "open" || this.#free() <= 0) {
      void this.#giveBack(hand);
      return;
    }
    this.#hands.set(key, hand);
    this.#progress.hold(delivery);
    void this.#decide(hand);
  }

  /** A worker that gets its own run back keeps it, with the newest token. */
  #keep(hand: Hand, delivery: Delivery): void {
    this.#progress.release(hand.delivery);
    hand.delivery = delivery;
    this.#progress.hold(delivery);
    say(this.#broker.nc, delivery, "+WPI");
  }

  async #decide(hand: Hand): Promise<void> {
    let found: Found;
    let queued: QueuedRun;
    try {
      const where = `${hand.delivery.subject} at ${hand.streamSeq}`;
      const { epoch, streamSeq } = hand;
      queued = { epoch, streamSeq, event: parseQueued(hand.delivery.body, where) };
      found = await this.#look(hand, queued);
    } catch (error) {
      this.#undecided(hand, error);
      return;
    }
    if (!this.#hands.has(hand.key)) return; // given back meanwhile
    switch (found.kind) {
      case "owned":
        this.#drop(hand);
        return;
      case "over":
        if (found.warning !== undefined) this.#warn(`${hand.ref.run}: ${found.warning}`);
        hand.phase = "leaving";
        await this.#ackNow(hand);
        return;
      default:
        this.#give(hand, queued, found);
    }
  }

  async #look(hand: Hand, queued: QueuedRun): Promise<Found> {
    for (;;) {
      const standing = await readStanding(this.#broker, hand.ref, hand.agent);
      const verdict = standingVerdict(queued, standing);
      switch (verdict.kind) {
        case "fresh":
          return { kind: "fresh" };
        case "ended":
          return { kind: "over" };
        case "stale":
          return { kind: "over", warning: "the delivered job is not the stored one" };
        case "foreign": {
          const { epoch } = verdict.last;
          return {
            kind: "over",
            warning: `the log is of epoch ${epoch}, the job of ${hand.epoch}`,
          };
        }
        case "begun":
      }
      if (await this.#isOwned(hand, verdict.last.worker)) return { kind: "owned" };
      const log = await recover(this.#broker, this.#snapshots, hand.ref, queued);
      // The owner finished while it was asked: its terminal decides.
      if (log !== "ended") return { kind: "takeover", log };
    }
  }

  async #isOwned(hand: Hand, worker: string): Promise<boolean> {
    // Our own name and not in our hands: we let it go, and go on from the log like anybody else.
    if (worker === "" || worker === this.#options.worker) return false;
    const question = { ...hand.ref, epoch: hand.epoch, agent: hand.agent };
    return (await this.#ownerCheck.ask(worker, question)) === "holds";
  }

  #undecided(hand: Hand, error: unknown): void {
    if (!this.#hands.has(hand.key)) return;
    this.#warn(`${hand.ref.run} could not be taken up yet`, error);
    const passing = error instanceof BrokerUnavailable;
    void this.#giveBack(hand, passing ? RETRY_MS : CORRUPT_RETRY_MS);
  }

  #give(hand: Hand, queued: QueuedRun, found: Found & { kind: "fresh" | "takeover" }): void {
    hand.phase = "claimed";
    const { ref, agent, epoch, streamSeq } = hand;
    const claim: RunClaim = {
      ref,
      agent,
      epoch,
      streamSeq,
      queued: queued.event,
      kind: found.kind,
      ...(found.kind === "takeover" ? { log: found.log } : {}),
      ack: () => this.#leave(hand, () => this.#ackClaim(hand)),
      handBack: () => this.#leave(hand, () => this.#giveBack(hand)),
      abandon: () => {
        if (hand.phase === "claimed") this.#drop(hand);
      },
    };
    try {
      this.#options.onRun(claim);
    } catch (error) {
      this.#warn(`the worker did not take ${ref.run}`, error);
      if (hand.phase === "claimed") void this.#giveBack(hand, RETRY_MS);
    }
    // It may have been a smaller claim than the room that was kept for it.
    this.wake();
  }

  async #leave(hand: Hand, way: () => Promise<void>): Promise<void> {
    if (hand.phase !== "claimed") return;
    hand.phase = "leaving";
    await way();
  }

  /**
   * A stream that was made anew gives old sequences to new jobs, and an ack names nothing
   * else: so it is looked whether the job at that place is still the claim's.
   */
  async #ackClaim(hand: Hand): Promise<void> {
    const shard = this.#broker.shardOf(hand.ref.session);
    try {
      const query = { seq: hand.streamSeq };
      const patience = this.#options.ackWaitMs;
      const raw = await leaderReadPatiently(
        this.#broker.nc,
        streamName.events(shard),
        query,
        patience,
      );
      if (
        raw &&
        (raw.subject !== hand.delivery.subject || raw.headers.get(H.epoch) !== hand.epoch)
      ) {
        this.#warn(`${hand.ref.run} is not acked: another job is stored in its place`);
        this.#drop(hand);
        return;
      }
    } catch (error) {
      this.#warn(`the end of ${hand.ref.run} is not acked: it will come again`, error);
      this.#drop(hand);
      return;
    }
    await this.#ackNow(hand);
  }

  async #ackNow(hand: Hand): Promise<void> {
    try {
      await confirm(this.#broker.nc, hand.delivery, "+ACK", this.#options.ackWaitMs);
    } catch (error) {
      this.#warn(`the ack of ${hand.ref.run} was not confirmed: it may come again`, error);
    }
    this.#drop(hand);
  }

  /** Out of hand first, so that an owner check by whoever gets it next is answered with no. */
  #giveBack(hand: Hand, delayMs?: number): Promise<void> {
    this.#drop(hand);
    const told = confirm(this.#broker.nc, hand.delivery, nakOf(delayMs), GIVE_BACK_MS)
      .catch((error: unknown) => {
        this.#warn(`${hand.ref.run} was not given back: it goes on after ack_wait`, error);
      })
      .finally(() => {
        this.#givingBack.delete(told);
        this.#closeIfEmpty();
      });
    this.#givingBack.add(told);
    return told;
  }

  #drop(hand: Hand): void {
    this.#progress.release(hand.delivery);
    if (this.#hands.get(hand.key) === hand) this.#hands.delete(hand.key);
    this.wake();
    this.#closeIfEmpty();
  }

  #closeIfEmpty(): void {
    if (this.#phase !== "stopping" || this.#hands.size > 0 || this.#givingBack.size > 0) return;
    this.#phase = "closed";
    this.#progress.close();
    this.#ownerCheck.close();
    this.#answers.close();
    this.#unwatch();
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
