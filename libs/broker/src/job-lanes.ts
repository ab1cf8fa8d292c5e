import type { Broker } from "./broker.ts";
import { ensureJobConsumer, type JobConsumer } from "./consumer.ts";
import type { Delivery } from "./delivery.ts";
import { BrokerMisfit } from "./errors.ts";
import { type PullEnd, PullLane } from "./pull.ts";
import { RoomShare } from "./room.ts";

export interface JobLanesOptions {
  readonly broker: Pick<Broker, "nc" | "jsm" | "connection" | "onConnection">;
  /** One durable consumer each. */
  readonly jobs: readonly JobConsumer[];
  readonly expiresMs: number;
  /** Places that are neither taken nor being decided. Open pulls are counted here. */
  readonly room: () => number;
  readonly onDelivery: (delivery: Delivery, job: JobConsumer) => void;
  /** Retried by itself; told so that an operator can see it. */
  readonly onWarning: (text: string, cause?: unknown) => void;
  /** A consumer that cannot serve. The lane is closed, the others go on. */
  readonly onFatal: (error: BrokerMisfit) => void;
}

const BACKOFF_FIRST_MS = 100;
const BACKOFF_CAP_MS = 5_000;

type LanePhase =
  /** The consumer is being made, or looked after because nobody answered for it. */
  | { readonly kind: "preparing" }
  | { readonly kind: "ready" }
  | { readonly kind: "resting"; readonly timer: NodeJS.Timeout }
  | { readonly kind: "closed" };

interface Lane {
  readonly job: JobConsumer;
  readonly pull: PullLane;
  phase: LanePhase;
  /** In a row; paces the retries. */
  failures: number;
}

/**
 * The consumers of some jobs and one pull in flight on each, no more than there is room for.
 * Nothing is asked for while there is no room; `wake` says that there may be some again.
 */
export class JobLanes {
  /** All consumers are there. Rejects with BrokerMisfit if one cannot serve. */
  readonly ready: Promise<void>;
  readonly #options: JobLanesOptions;
  readonly #lanes: Lane[];
  readonly #share: RoomShare;
  readonly #unwatch: () => void;
  #wakeQueued = false;
  #stopped = false;

  constructor(options: JobLanesOptions) {
    this.#options = options;
    this.#share = new RoomShare({ lanes: options.jobs.length, expiresMs: options.expiresMs });
    this.#lanes = options.jobs.map((job) => this.#open(job));
    this.#unwatch = options.broker.onConnection((state) => {
      if (state === "down") for (const lane of this.#lanes) lane.pull.reset();
      else this.wake();
    });
    this.ready = Promise.all(this.#lanes.map((lane) => this.#prepare(lane))).then(() => undefined);
    // Told by `onFatal` as well: who does not await it must not crash.
    this.ready.catch(() => undefined);
  }

  #open(job: JobConsumer): Lane {
    const lane: Lane = {
      job,
      phase: { kind: "preparing" },
      failures: 0,
      pull: new PullLane({
        nc: this.#options.broker.nc,
        stream: job.stream,
        consumer: job.name,
        onDelivery: (delivery) => {
          lane.failures = 0;
          this.#options.onDelivery(delivery, job);
        },
        onEnd: (end) => this.#ended(lane, end),
      }),
    };
    return lane;
  }

  /** Looks at the room again, once in this turn of the loop however often it is called. */
  wake(): void {
    if (this.#wakeQueued || this.#stopped) return;
    this.#wakeQueued = true;
    queueMicrotask(() => {
      this.#wakeQueued = false;
      this.#distribute();
    });
  }

  /** Ends all pulls at the server; what they had delivered before has come to `onDelivery` when this resolves. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#unwatch();
    for (const lane of this.#lanes) {
      if (lane.phase.kind === "resting") clearTimeout(lane.phase.timer);
      lane.phase = { kind: "closed" };
    }
    await Promise.all(this.#lanes.map((lane) => lane.pull.close()));
  }

  #distribute(): void {
    if (this.#stopped || this.#options.broker.connection === "down") return;
    const idle = new Set<number>();
    let asked = 0;
    for (const [i, lane] of this.#lanes.entries()) {
      asked += lane.pull.outstanding;
      if (lane.phase.kind === "ready" && lane.pull.isIdle) idle.add(i);
    }
    for (const order of this.#share.orders(this.#options.room() - asked, idle)) {
      this.#lanes[order.lane]?.pull.pull(order.batch, order.expiresMs);
    }
  }

  #ended(lane: Lane, end: PullEnd): void {
    switch (end.kind) {
      case "done":
        lane.failures = 0;
        this.wake();
        return;
      case "retry":
        this.#warn(lane, `a pull ended: ${end.reason}`);
        this.#rest(lane, () => {
          lane.phase = { kind: "ready" };
          this.wake();
        });
        return;
      case "gone":
        this.#warn(lane, `the consumer is looked after: ${end.reason}`);
        this.#rest(lane, () => {
          // A misfit found now was told by `onFatal`.
          this.#prepare(lane).catch(() => undefined);
        });
        return;
      case "refused":
        lane.phase = { kind: "closed" };
        this.#options.onFatal(
          new BrokerMisfit(`${lane.job.name} of ${lane.job.stream} refuses pulls: ${end.reason}`),
        );
    }
  }

  #rest(lane: Lane, then: () => void): void {
    const ms = Math.min(BACKOFF_CAP_MS, BACKOFF_FIRST_MS * 2 ** lane.failures);
    lane.failures += 1;
    lane.phase = { kind: "resting", timer: setTimeout(then, ms) };
  }

  #warn(lane: Lane, what: string, cause?: unknown): void {
    this.#options.onWarning(`${lane.job.name} of ${lane.job.stream}: ${what}`, cause);
  }

  /** Makes the consumer, for as long as it takes: right after a start a cluster has no leaders. */
  async #prepare(lane: Lane): Promise<void> {
    lane.phase = { kind: "preparing" };
    for (;;) {
      if (this.#stopped) return;
      try {
        const kept = await ensureJobConsumer(this.#options.broker.jsm, lane.job);
        if (kept !== undefined) this.#options.onWarning(kept);
        break;
      } catch (error) {
        if (this.#stopped) return;
        if (error instanceof BrokerMisfit) {
          lane.phase = { kind: "closed" };
          this.#options.onFatal(error);
          throw error;
        }
        this.#warn(lane, "the consumer could not be made yet", error);
        const ms = Math.min(BACKOFF_CAP_MS, BACKOFF_FIRST_MS * 2 ** lane.failures);
        lane.failures += 1;
        await new Promise((resolve) => setTimeout(resolve, ms));
      }
    }
    if (this.#stopped) return;
    lane.phase = { kind: "ready" };
    this.wake();
  }
}
