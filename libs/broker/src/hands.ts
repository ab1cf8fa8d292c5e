import type { Broker } from "./broker.ts";
import type { Hand } from "./claim.ts";
import { confirm, type Delivery, InProgress, nakOf, say } from "./delivery.ts";
import { FencedError } from "./errors.ts";
import { H } from "./headers.ts";
import { leaderRead, leaderReadPatiently } from "./leader-read.ts";
import { eventSubject, streamName } from "./subjects.ts";

export interface HandsOptions {
  readonly broker: Pick<Broker, "nc" | "shardOf" | "connection" | "onConnection">;
  readonly worker: string;
  readonly ackWaitMs: number;
  readonly onWarning: (text: string, cause?: unknown) => void;
  /** A job left our hands. */
  readonly onLeft: () => void;
}

/** A stop while NATS is away must not take longer; the job goes on after `ack_wait` then. */
const GIVE_BACK_MS = 5_000;
/** Claims whose owner is looked up at the same time. */
const LOOKS = 16;
/** A claim is compared with the log once in so many `ack_wait`s. */
const AUDIT_EVERY = 10;

/** The jobs in this worker's hands, and all that is said to the server about them. */
export class Hands {
  readonly #options: HandsOptions;
  readonly #hands: Map<string, Hand> = new Map();
  readonly #deciding: Set<Hand> = new Set();
  readonly #progress: InProgress;
  readonly #farewells: Set<Promise<void>> = new Set();
  readonly #unwatch: () => void;
  readonly #auditTimer: NodeJS.Timeout;
  #auditing = false;
  #auditDue = false;

  constructor(options: HandsOptions) {
    this.#options = options;
    this.#progress = new InProgress(options.broker, options.ackWaitMs, () => this.audit());
    this.#unwatch = options.broker.onConnection((state) => {
      if (state === "down") return;
      this.#progress.beat();
      this.audit();
    });
    this.#auditTimer = setInterval(() => this.audit(), AUDIT_EVERY * options.ackWaitMs);
  }

  /** Jobs whose log is being read. */
  get deciding(): number {
    return this.#deciding.size;
  }

  /** Nothing in hand and nothing left to say. */
  get isEmpty(): boolean {
    return this.#hands.size === 0 && this.#farewells.size === 0;
  }

  get(key: string): Hand | undefined {
    return this.#hands.get(key);
  }

  has(hand: Hand): boolean {
    return this.#hands.get(hand.key) === hand;
  }

  take(hand: Hand): void {
    this.#hands.set(hand.key, hand);
    this.#deciding.add(hand);
    this.#progress.hold(hand.delivery);
  }

  /** A worker that gets its own run back keeps it, with the newest token. */
  keep(hand: Hand, delivery: Delivery): void {
    this.#progress.release(hand.delivery);
    hand.delivery = delivery;
    this.#progress.hold(delivery);
    say(this.#options.broker.nc, delivery, "+WPI");
  }

  /** `base`: stream sequence of the run's last event as it was read; 0 for none. */
  claim(hand: Hand, base: number): void {
    hand.phase = "claimed";
    hand.base = base;
    this.#deciding.delete(hand);
  }

  /** Says nothing more. */
  drop(hand: Hand): void {
    this.#release(hand);
    this.#options.onLeft();
  }

  #release(hand: Hand): void {
    this.#progress.release(hand.delivery);
    this.#deciding.delete(hand);
    if (this.has(hand)) this.#hands.delete(hand.key);
  }

  /** Out of hand first, so that an owner check by whoever gets it next is answered with no. */
  giveBack(hand: Hand, delayMs?: number): Promise<void> {
    this.#release(hand);
    const { nc } = this.#options.broker;
    const told = confirm(nc, hand.delivery, nakOf(delayMs), GIVE_BACK_MS).catch(
      (error: unknown) => {
        const what = `${hand.ref.run} was not given back: it goes on after ack_wait`;
        this.#options.onWarning(what, error);
      },
    );
    return this.#farewell(told);
  }

  giveBackUndecided(): void {
    for (const hand of this.#deciding) void this.giveBack(hand);
  }

  /** For a run whose log has ended. */
  ack(hand: Hand): Promise<void> {
    hand.phase = "leaving";
    this.#deciding.delete(hand);
    return this.#farewell(this.#ack(hand));
  }

  /**
   * The same for a claim, which may be old. A stream that was made anew gives old sequences to new
   * jobs, and an ack names nothing else: so it is looked whether that job is still the claim's.
   */
  ackClaim(hand: Hand): Promise<void> {
    hand.phase = "leaving";
    return this.#farewell(this.#ackIfOurs(hand));
  }

  /** Resolves when everything said so far was confirmed, or given up with a warning. */
  async settled(): Promise<void> {
    await Promise.all(this.#farewells);
  }

  close(): void {
    this.#unwatch();
    clearInterval(this.#auditTimer);
    this.#progress.close();
  }

  #farewell(said: Promise<void>): Promise<void> {
    const done = said.finally(() => {
      this.#farewells.delete(done);
      this.#options.onLeft();
    });
    this.#farewells.add(done);
    return done;
  }

  async #ack(hand: Hand): Promise<void> {
    try {
      await confirm(this.#options.broker.nc, hand.delivery, "+ACK", this.#options.ackWaitMs);
    } catch (error) {
      const what = `the ack of ${hand.ref.run} was not confirmed: it may come again`;
      this.#options.onWarning(what, error);
    }
    this.#release(hand);
  }

  async #ackIfOurs(hand: Hand): Promise<void> {
    const { broker, ackWaitMs, onWarning } = this.#options;
    const stream = streamName.events(broker.shardOf(hand.ref.session));
    try {
      const raw = await leaderReadPatiently(broker.nc, stream, { seq: hand.streamSeq }, ackWaitMs);
      const ours =
        raw?.subject === hand.delivery.subject && raw.headers.get(H.epoch) === hand.epoch;
      if (!raw || ours) {
        await this.#ack(hand);
        return;
      }
      onWarning(`${hand.ref.run} is not acked: another job is stored in its place`);
    } catch (error) {
      onWarning(`the end of ${hand.ref.run} is not acked: it will come again`, error);
    }
    this.#release(hand);
  }

  /**
   * Compares all claims with the log. A worker that was frozen or cut off may have lost runs without
   * noticing: one that waits for an answer appends nothing, so no fence tells it, and its "in
   * progress" would keep the job from coming again when the run's new owner dies.
   */
  audit(): void {
    this.#auditDue = true;
    if (!this.#auditing) void this.#runAudits();
  }

  async #runAudits(): Promise<void> {
    this.#auditing = true;
    // Away from NATS nothing can be compared; coming back asks for it again.
    while (this.#auditDue && this.#options.broker.connection === "up") {
      this.#auditDue = false;
      const claims = [...this.#hands.values()].filter((hand) => hand.phase === "claimed");
      const look = async (): Promise<void> => {
        for (let hand = claims.pop(); hand; hand = claims.pop()) await this.#auditOne(hand);
      };
      await Promise.all(Array.from({ length: LOOKS }, look));
    }
    this.#auditing = false;
  }

  async #auditOne(hand: Hand): Promise<void> {
    const { broker, worker, onWarning } = this.#options;
    const shard = broker.shardOf(hand.ref.session);
    try {
      const subject = eventSubject.e(hand.ref, shard);
      const raw = await leaderRead(broker.nc, streamName.events(shard), { last_by_subj: subject });
      const writtenBy = raw?.headers.get(H.worker);
      if (!raw || raw.streamSeq <= hand.base || writtenBy === worker) return;
      if (!this.has(hand) || hand.phase !== "claimed") return;
      this.drop(hand);
      hand.lost.abort(new FencedError(`${hand.ref.run} was taken over by worker ${writtenBy}`));
    } catch (error) {
      onWarning(`${hand.ref.run} could not be compared with its log`, error);
    }
  }
}
