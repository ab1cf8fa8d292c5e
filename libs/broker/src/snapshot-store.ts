import type { Broker } from "./broker.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { H, N } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead, leaderReadPatiently } from "./leader-read.ts";
import { isFatalRefusal, publishAcked, REFUSED } from "./publish.ts";
import { eventSubject, snapshotSubject, streamName } from "./subjects.ts";

/** A run's state as of one of its events. Covers stored events only. */
export interface Snapshot {
  /** JSON; the reducer's state. */
  readonly state: unknown;
  /** Last event covered, and the stream sequence of the message that holds it. */
  readonly seq: number;
  readonly streamSeq: number;
  readonly attempt: number;
  readonly writer: string;
  readonly epoch: string;
  /** COMMANDS sequence applied through. */
  readonly cmd: number;
}

/** The state does not fit into one NATS message. The older snapshot stays, the run goes on. */
export class SnapshotTooLarge extends Error {
  override readonly name = "SnapshotTooLarge";
}

export type SnapshotStoreBroker = Pick<Broker, "nc" | "shardOf"> & {
  readonly reader: Pick<DirectReader, "read">;
};

/** Position of the snapshot in the events' stream (its own stream sequence means nothing). */
const POSITION = "Tl-Position";

/** Room for subject and headers within NATS's `max_payload`, which counts headers too. */
const HEADER_BYTES = 2_048;
const PUBLISH_MS = 3_000;
/** After a leader's `kill -9` appends come back in 4–8 s. */
const PATIENCE_MS = 20_000;
const RETRY_MS = 100;

type Mark = Pick<Snapshot, "seq" | "attempt" | "epoch">;

/**
 * Pure: what a write does to what is stored. `covered`: as good or better is there, of the same
 * attempt (also our own, after an unknown outcome). `other epoch`: the event log must say whose run it is.
 */
export function snapshotVerdict(
  held: Mark | undefined,
  offered: Mark,
): "replace" | "covered" | "fenced" | "other epoch" {
  if (!held) return "replace";
  if (held.epoch !== offered.epoch) return "other epoch";
  if (held.attempt > offered.attempt) return "fenced";
  if (held.attempt === offered.attempt && held.seq >= offered.seq) return "covered";
  return "replace";
}

/** One snapshot per run, the last one wins, fenced like events. */
export class SnapshotStore {
  readonly #broker: SnapshotStoreBroker;

  constructor(broker: SnapshotStoreBroker) {
    this.#broker = broker;
  }

  /**
   * From a replica the snapshot may be an older one, and a miss is asked of the leader.
   * Rejects with BrokerUnavailable, or LogCorrupt for what no snapshot store wrote.
   */
  async read(ref: RunRef, from: "leader" | "replica"): Promise<Snapshot | undefined> {
    const { stream, subject } = this.#place(ref);
    const query = { last_by_subj: subject };
    const near =
      from === "replica" ? (await this.#broker.reader.read(stream, query)).messages[0] : undefined;
    const raw = near ?? (await leaderRead(this.#broker.nc, stream, query));
    return raw && decode(raw);
  }

  /**
   * "fenced": a newer attempt has written one, or the run is another incarnation's; nothing was changed.
   * Rejects with SnapshotTooLarge, or BrokerUnavailable when the outcome could not be learnt in 20 s.
   */
  async write(ref: RunRef, snapshot: Snapshot): Promise<"stored" | "fenced"> {
    const { nc } = this.#broker;
    const { stream, subject } = this.#place(ref);
    const body = Buffer.from(JSON.stringify(snapshot.state));
    const limit = (nc.info?.max_payload ?? 1024 * 1024) - HEADER_BYTES;
    if (body.byteLength > limit) {
      throw new SnapshotTooLarge(
        `the state of ${ref.run} takes ${body.byteLength} bytes, ${limit} fit into a message`,
      );
    }
    const giveUpAt = Date.now() + PATIENCE_MS;
    let last: unknown;
    while (Date.now() < giveUpAt) {
      const query = { last_by_subj: subject };
      const held = await leaderReadPatiently(nc, stream, query, giveUpAt - Date.now());
      const verdict = snapshotVerdict(held && mark(held), snapshot);
      if (verdict === "covered") return "stored";
      if (verdict === "fenced") return "fenced";
      if (verdict === "other epoch" && (await this.#epochOf(ref)) !== snapshot.epoch)
        return "fenced";
      const outcome = await publishAcked(nc, subject, body, fields(snapshot, held), PUBLISH_MS);
      if (outcome.kind === "stored") return "stored";
      if (outcome.kind === "refused" && isFatalRefusal(outcome.code)) {
        throw new SnapshotTooLarge(
          `NATS refuses the snapshot of ${ref.run}: ${outcome.description}`,
        );
      }
      last = outcome;
      // A mismatch is decided by the next read; anything else needs time as well.
      if (outcome.kind === "refused" && outcome.code === REFUSED.wrongLastSequence) continue;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    throw new BrokerUnavailable(`the snapshot of ${ref.run} was not confirmed`, { cause: last });
  }

  /** The incarnation that the run's log is of. */
  async #epochOf(ref: RunRef): Promise<string | undefined> {
    const shard = this.#broker.shardOf(ref.session);
    for (const subject of [eventSubject.e(ref, shard), eventSubject.anyQ(ref, shard)]) {
      const query = { last_by_subj: subject };
      const raw = await leaderRead(this.#broker.nc, streamName.events(shard), query);
      if (raw) return raw.headers.get(H.epoch);
    }
    return undefined;
  }

  #place(ref: RunRef): { stream: string; subject: string } {
    const shard = this.#broker.shardOf(ref.session);
    return { stream: streamName.snapshots(shard), subject: snapshotSubject(ref, shard) };
  }
}

function fields(s: Snapshot, held: RawMessage | undefined): Record<string, string | number> {
  return {
    [N.expectedLastSubject]: held?.streamSeq ?? 0,
    [H.seq]: s.seq,
    [POSITION]: s.streamSeq,
    [H.attempt]: s.attempt,
    [H.writer]: s.writer,
    [H.epoch]: s.epoch,
    [H.cmd]: s.cmd,
  };
}

function whole(raw: RawMessage, name: string): number {
  const text = raw.headers.get(name);
  const value = Number(text);
  if (text === "" || !Number.isSafeInteger(value) || value < 0) {
    throw new LogCorrupt(`header ${name} of ${raw.subject} is ${JSON.stringify(text)}`);
  }
  return value;
}

function mark(raw: RawMessage): Mark {
  return {
    seq: whole(raw, H.seq),
    attempt: whole(raw, H.attempt),
    epoch: raw.headers.get(H.epoch),
  };
}

function decode(raw: RawMessage): Snapshot {
  let state: unknown;
  try {
    state = JSON.parse(Buffer.from(raw.body).toString("utf8"));
  } catch (cause) {
    throw new LogCorrupt(`the snapshot on ${raw.subject} is not JSON`, { cause });
  }
  return {
    ...mark(raw),
    state,
    streamSeq: whole(raw, POSITION),
    writer: raw.headers.get(H.writer),
    cmd: whole(raw, H.cmd),
  };
}
