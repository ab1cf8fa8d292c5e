/** When a run's snapshot is due, and the writing of it. */
import { type Broker, BrokerUnavailable, type RunRef, type RunWriter } from "@throughline/broker";
import type { Ledger } from "./ledger.ts";
import type { Log } from "./log.ts";

/** A takeover or a client that asks for the state reads at most so many events after it. */
const EVERY_EVENTS = 200;
const EVERY_MS = 30_000;

/** Pure: `events` stored since the last snapshot, which is `ageMs` old. */
export function snapshotDue(events: number, ageMs: number): boolean {
  return events >= EVERY_EVENTS || (events > 0 && ageMs >= EVERY_MS);
}

export interface SnapshotsOptions {
  readonly broker: Pick<Broker, "snapshots">;
  readonly ref: RunRef;
  readonly epoch: string;
  readonly attempt: number;
  readonly writer: RunWriter;
  readonly ledger: Ledger;
  readonly log: Log;
}

export class Snapshots {
  readonly #options: SnapshotsOptions;
  #seq: number;
  #at: number;
  #writing: Promise<"stored" | "fenced" | "failed"> | undefined;

  /** `now` on the performance clock, like all times here. */
  constructor(options: SnapshotsOptions, now: number) {
    this.#options = options;
    this.#seq = options.writer.stored.seq;
    this.#at = now;
  }

  isDue(now: number): boolean {
    if (this.#writing) return false;
    return snapshotDue(this.#options.writer.stored.seq - this.#seq, now - this.#at);
  }

  /**
   * Covers everything that is stored at the call. A snapshot that fails costs a slower takeover and no
   * event, so it is logged and tried again when the next is due.
   */
  async take(): Promise<"stored" | "fenced" | "failed"> {
    // One after the other: an older one must not come to lie over a newer.
    await this.#writing;
    this.#writing = this.#write().finally(() => (this.#writing = undefined));
    return this.#writing;
  }

  async #write(): Promise<"stored" | "fenced" | "failed"> {
    const { broker, ref, epoch, attempt, writer, ledger, log } = this.#options;
    const { cmd } = writer.stored;
    const { state } = ledger;
    this.#at = performance.now();
    this.#seq = state.seq;
    try {
      const snapshot = {
        state,
        seq: state.seq,
        streamSeq: ledger.streamSeq,
        attempt,
        writer: writer.writer,
        epoch,
        cmd,
      };
      return await broker.snapshots.write(ref, snapshot);
    } catch (error) {
      const level = error instanceof BrokerUnavailable ? "info" : "warn";
      log[level]({ err: error, seq: this.#seq }, "the snapshot was not written");
      return "failed";
    }
  }
}
