import type { FailureCode } from "@throughline/protocol";
import { AgentDirectory } from "./agent-directory.ts";
import type { Broker } from "./broker.ts";
import { CancelledRuns } from "./cancelled-runs.ts";
import type { JobConsumer } from "./consumer.ts";
import { confirm, type Delivery, InProgress, nakOf } from "./delivery.ts";
import type { BrokerMisfit } from "./errors.ts";
import { H } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { JobLanes } from "./job-lanes.ts";
import { readStanding, type Standing } from "./standing.ts";
import { parseEventSubject, streamName, sweepFilter } from "./subjects.ts";
import {
  Absences,
  dueAt,
  type Outcome,
  type SweepJob,
  type SweepVerdict,
  sweepVerdict,
  unbegunVerdict,
} from "./sweep-rules.ts";
import { type EndingSweep, endRun } from "./swept-end.ts";

export interface SweepOptions {
  readonly worker: string;
  /** How long a run may wait for a worker before it is asked whether any offers its agent, in ms. */
  readonly queueTimeoutMs: number;
  readonly ackWaitMs: number;
  /** How long after the deadline a run's owner may still end it itself, in ms (default 5,000). */
  readonly graceMs?: number;
  /** How long after a queued run was cancelled a worker may still take it up, in ms (default 2,000). */
  readonly takeUpMs?: number;
  /** Which agents are offered (default: the directory with its default times). */
  readonly agents?: Pick<AgentDirectory, "ttlMs" | "offered">;
  readonly onWarning?: (text: string, cause?: unknown) => void;
  readonly onFatal?: (error: BrokerMisfit) => void;
}

const SWEEP_CONSUMER = "sweep";

const EXPIRES_MS = 5_000;
const RETRY_MS = 2_000;
const CONFIRM_MS = 5_000;
const GRACE_MS = 5_000;
const TAKE_UP_MS = 2_000;
/** Node's timers take no more than 24 days and fire at once beyond; what is woken early looks and waits on. */
const TIMER_CAP_MS = 24 * 60 * 60_000;
/** For a job without a deadline header, which no edge of ours writes. */
const DEADLINE_MS = 72 * 60 * 60_000;
/** Runs watched in memory because their job expires before their deadline (short retention only). */
const WATCHED = 10_000;

interface Swept extends SweepJob {
  readonly ref: RunRef;
  readonly agent: string;
}

/**
 * Ends what nobody finishes: goes through a shard's jobs in order as they fall due. Every worker
 * runs one and they share the consumers, so the oldest job is held by one of them at a time.
 */
export class Sweep {
  readonly ready: Promise<void>;
  readonly #broker: Broker;
  readonly #options: SweepOptions;
  readonly #agents: Pick<AgentDirectory, "ttlMs" | "offered">;
  /** A worker says every third of the directory's time that it is there. */
  readonly #confirmMs: number;
  readonly #absences: Absences;
  readonly #progress: InProgress;
  readonly #ending: EndingSweep;
  readonly #cancelled: CancelledRuns;
  readonly #lanes: JobLanes[];
  readonly #unwatch: () => void;
  readonly #stopping: AbortController = new AbortController();
  readonly #atWork: Set<Promise<void>> = new Set();
  readonly #watched: Map<string, NodeJS.Timeout> = new Map();

  constructor(broker: Broker, options: SweepOptions) {
    this.#broker = broker;
    this.#options = options;
    this.#agents = options.agents ?? new AgentDirectory(broker);
    this.#confirmMs = this.#agents.ttlMs / 2;
    this.#absences = new Absences(this.#confirmMs);
    this.#progress = new InProgress(broker, options.ackWaitMs);
    this.#ending = { broker, worker: options.worker, warn: (...what) => this.#warn(...what) };
    this.#cancelled = new CancelledRuns(this.#ending, {
      agents: this.#agents,
      takeUpMs: options.takeUpMs ?? TAKE_UP_MS,
    });
    this.#unwatch = broker.onConnection((state) => {
      if (state === "up") this.#progress.beat();
    });
    this.#lanes = Array.from({ length: broker.shards }, (_, shard) => this.#lane(shard));
    this.ready = Promise.all(this.#lanes.map((lanes) => lanes.ready)).then(() => undefined);
    this.ready.catch(() => undefined);
  }

  /** What is held goes back at once. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#lanes.map((lanes) => lanes.stop()));
    await Promise.all([...this.#atWork, this.#cancelled.close()]);
    for (const timer of this.#watched.values()) clearTimeout(timer);
    this.#progress.close();
    this.#unwatch();
  }

  #lane(shard: number): JobLanes {
    const job: JobConsumer = {
      stream: streamName.events(shard),
      name: SWEEP_CONSUMER,
      filter: sweepFilter(shard),
      ackWaitMs: this.#options.ackWaitMs,
    };
    let held = 0;
    const lanes: JobLanes = new JobLanes({
      broker: this.#broker,
      jobs: [job],
      expiresMs: EXPIRES_MS,
      room: () => 1 - held,
      onDelivery: (delivery) => {
        held += 1;
        const work = this.#hold(delivery).finally(() => {
          held -= 1;
          this.#atWork.delete(work);
          lanes.wake();
        });
        this.#atWork.add(work);
      },
      onWarning: (text, cause) => this.#warn(text, cause),
      onFatal: this.#options.onFatal ?? ((error) => this.#warn(error.message, error)),
    });
    return lanes;
  }

  #warn(text: string, cause?: unknown): void {
    this.#options.onWarning?.(text, cause);
  }

  async #hold(delivery: Delivery): Promise<void> {
    this.#progress.hold(delivery);
    let word: string;
    try {
      word = await this.#sweep(delivery);
    } catch (error) {
      this.#warn(`${delivery.subject} could not be swept yet`, error);
      word = nakOf(RETRY_MS);
    }
    // Before the answer: "in progress" after a nak with a delay would undo the delay.
    this.#progress.release(delivery);
    try {
      await confirm(this.#broker.nc, delivery, word, CONFIRM_MS);
    } catch (error) {
      this.#warn(`${delivery.subject} comes again after ack_wait`, error);
    }
  }

  /** Resolves to the answer for the delivery. */
  async #sweep(delivery: Delivery): Promise<string> {
    const job = jobOf(delivery);
    if (!job) {
      this.#warn(`${delivery.subject} is no job`);
      return "+ACK";
    }
    let until = dueAt(job, this.#options.queueTimeoutMs);
    for (;;) {
      if (!(await this.#until(until))) return nakOf();
      const standing = await readStanding(this.#broker, job.ref, job.agent);
      const verdict = await this.#judge(job, standing);
      switch (verdict.kind) {
        case "over":
          return "+ACK";
        case "fail":
          if (await this.#end(job, standing, verdict.code)) return "+ACK";
          until = Date.now(); // somebody wrote first: look again
          continue;
        case "hold":
          until = verdict.until;
          continue;
        case "later":
          return this.#later(job, verdict.at);
      }
    }
  }

  async #judge(job: Swept, standing: Standing): Promise<Outcome> {
    const verdict = this.#verdict(job, standing);
    if (verdict.kind !== "unbegun") return verdict;
    if (await this.#end(job, standing)) return { kind: "over" };
    const offered = await this.#agents.offered(job.agent);
    const now = Date.now();
    return unbegunVerdict(job, this.#absences.look(job.agent, offered, now), now, {
      queueTimeoutMs: this.#options.queueTimeoutMs,
      confirmMs: this.#confirmMs,
    });
  }

  /** False when the sweep stops before. */
  #until(at: number): Promise<boolean> {
    const { signal } = this.#stopping;
    if (signal.aborted) return Promise.resolve(false);
    const ms = at - Date.now();
    if (ms <= 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const done = (value: boolean): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", stopped);
        resolve(value);
      };
      const stopped = (): void => done(false);
      const timer = setTimeout(() => done(true), Math.min(ms, TIMER_CAP_MS));
      signal.addEventListener("abort", stopped);
    });
  }

  /** Back to the consumer until then; or into memory, where the job itself will have expired. */
  #later(job: Swept, at: number): string {
    const { eventsMaxAgeMs } = this.#broker;
    const expires = eventsMaxAgeMs === 0 ? Infinity : job.queuedAt + eventsMaxAgeMs;
    if (at < expires) return nakOf(at - Date.now());
    if (this.#watched.size < WATCHED) this.#watch(job, at);
    else this.#warn(`${job.ref.run} is not watched past its job's retention: too many are`);
    return "+ACK";
  }

  #watch(job: Swept, at: number): void {
    const key = `${job.ref.tenant}.${job.ref.session}.${job.ref.run}`;
    clearTimeout(this.#watched.get(key));
    const look = (): void => {
      this.#watched.delete(key);
      this.#endWatched(job).catch((error: unknown) => {
        this.#warn(`${job.ref.run} could not be ended yet`, error);
        if (!this.#stopping.signal.aborted) this.#watch(job, Date.now() + RETRY_MS);
      });
    };
    this.#watched.set(key, setTimeout(look, Math.min(at - Date.now(), TIMER_CAP_MS)));
  }

  async #endWatched(job: Swept): Promise<void> {
    const standing = await readStanding(this.#broker, job.ref, job.agent);
    const verdict = this.#verdict(job, standing);
    switch (verdict.kind) {
      case "fail":
        // Refused: somebody has written meanwhile, perhaps the terminal.
        if (!(await this.#end(job, standing, verdict.code))) this.#watch(job, Date.now());
        return;
      case "later":
        this.#watch(job, verdict.at);
        return;
      default:
        return;
    }
  }

  #verdict(job: Swept, standing: Standing): SweepVerdict {
    return sweepVerdict(job, standing, Date.now(), this.#options.graceMs ?? GRACE_MS);
  }

  /** False: there is nothing to end it for, or somebody else has written meanwhile. */
  async #end(run: Swept, standing: Standing, code?: FailureCode): Promise<boolean> {
    return (await endRun(this.#ending, run, standing, code)) === "ended";
  }
}

function jobOf(delivery: Delivery): Swept | undefined {
  const address = parseEventSubject(delivery.subject);
  if (!address?.agent) return undefined;
  const { tenant, session, run, agent } = address;
  const told = Number(delivery.headers.get(H.deadline));
  return {
    ref: { tenant, session, run },
    agent,
    streamSeq: delivery.streamSeq,
    epoch: delivery.headers.get(H.epoch),
    queuedAt: delivery.storedAt,
    deadline: told > 0 ? told : delivery.storedAt + DEADLINE_MS,
  };
}

/** Several workers' sweeps share the consumers. */
export function openSweep(broker: Broker, options: SweepOptions): Sweep {
  return new Sweep(broker, options);
}
