import { createHash } from "node:crypto";
import { MAX_FRAME_BYTES } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import {
  compareAndSet,
  maxBody,
  type NewValue,
  PATIENCE_MS,
  type Place,
} from "./compare-and-set.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { H } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { isArtifactRef } from "./large-value.ts";
import { readLast } from "./last-read.ts";
import { leaderRead, leaderReadPatiently } from "./leader-read.ts";
import type { ArtifactRef } from "./object-store.ts";
import { eventSubject, snapshotSubject, streamName } from "./subjects.ts";
import { parseSuperseded, type Superseded, superseding, supersededText } from "./superseded.ts";

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
  /** Where a read found the state when it is too large for a frame: an object of the session. */
  readonly stateRef?: ArtifactRef;
}

export type SnapshotStoreBroker = Pick<Broker, "nc" | "shardOf" | "objects"> & {
  readonly reader: Pick<DirectReader, "read">;
};

/** Position of the snapshot in the events' stream (its own stream sequence means nothing). */
const POSITION = "Tl-Position";
/** `object`: the body is the reference of the state, not the state. */
const STATE = "Tl-State";
/** States of earlier snapshots that may still be read by those who were told of them. */
const SUPERSEDED = "Tl-Superseded";

/** A state that is kept in the message fits a frame, whatever else the frame says. */
const INLINE_BYTES: number = MAX_FRAME_BYTES - 4 * 1024;
/** A large state may be replaced while it is read: then there is a newer snapshot to read. */
const READS = 4;

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

/** One snapshot per run, the last one wins, fenced like events. Large states are objects. */
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
    let near = from;
    for (let reads = 0; reads < READS; reads += 1) {
      const found = await this.peek(ref, near);
      if (!found?.stateRef) return found;
      const bytes = await this.#broker.objects.get(ref, found.stateRef.$artifact);
      if (bytes) return { ...found, state: parse(bytes, `the state of ${ref.run}`) };
      near = "leader";
    }
    return undefined;
  }

  /** Like `read`, but a large state is not fetched: `state` is undefined where there is a `stateRef`. */
  async peek(ref: RunRef, from: "leader" | "replica"): Promise<Snapshot | undefined> {
    const place = this.#place(ref);
    const raw =
      from === "replica"
        ? await readLast(this.#broker, place)
        : await leaderRead(this.#broker.nc, place.stream, { last_by_subj: place.subject });
    return raw && decode(raw);
  }

  /**
   * "fenced": a newer attempt has written one, or the run is another incarnation's; nothing was changed.
   * Rejects with BrokerUnavailable when the outcome could not be learnt in 20 s.
   */
  async write(ref: RunRef, snapshot: Snapshot): Promise<"stored" | "fenced"> {
    const { nc } = this.#broker;
    const body = Buffer.from(JSON.stringify(snapshot.state));
    let large: ArtifactRef | undefined;
    const swap = await compareAndSet(
      nc,
      this.#place(ref),
      async (held): Promise<NewValue | undefined> => {
        if (!(await this.#replaces(ref, held, snapshot))) return undefined;
        const inline = body.byteLength <= Math.min(INLINE_BYTES, maxBody(nc));
        if (!inline) large ??= await this.#putState(ref, snapshot, body);
        const superseded = await this.#clear(ref, held, large);
        return {
          body: large ? Buffer.from(JSON.stringify(large)) : body,
          fields: {
            ...fields(snapshot),
            [STATE]: large && "object",
            [SUPERSEDED]: supersededText(superseded),
          },
        };
      },
    );
    if (swap.kind === "stored") return "stored";
    return snapshotVerdict(swap.held && mark(swap.held), snapshot) === "covered"
      ? "stored"
      : "fenced";
  }

  async #replaces(ref: RunRef, held: RawMessage | undefined, snapshot: Snapshot): Promise<boolean> {
    const verdict = snapshotVerdict(held && mark(held), snapshot);
    if (verdict !== "other epoch") return verdict === "replace";
    return (await this.#epochOf(ref)) === snapshot.epoch;
  }

  /** Under an id of this run's: replaced states are removed, and nobody else's object may go with them. */
  #putState(ref: RunRef, { epoch }: Snapshot, bytes: Uint8Array): Promise<ArtifactRef> {
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const own = createHash("sha256")
      .update(JSON.stringify([ref.run, epoch, sha256]))
      .digest("hex");
    const content = { bytes, sha256, media_type: "application/json" };
    return this.#broker.objects.putAs(ref, `snp_${own.slice(0, 32)}`, content);
  }

  /**
   * Removes the states that were replaced long enough ago, and returns those that are left for the
   * next write to do. Before the write: what `held` names as replaced is read by nobody, whoever wins.
   */
  async #clear(
    ref: RunRef,
    held: RawMessage | undefined,
    next: ArtifactRef | undefined,
  ): Promise<readonly Superseded[]> {
    if (!held) return [];
    const { stateRef } = decode(held);
    const { due, left } = superseding(
      parseSuperseded(held.headers.get(SUPERSEDED)),
      stateRef?.$artifact,
      next?.$artifact,
      Date.now(),
    );
    const failed: Superseded[] = [];
    for (const old of due) {
      try {
        await this.#broker.objects.remove(ref, old.id);
      } catch (error) {
        if (!(error instanceof BrokerUnavailable)) throw error;
        failed.push(old);
      }
    }
    return [...failed, ...left];
  }

  /** The incarnation that the run's log is of. */
  async #epochOf(ref: RunRef): Promise<string | undefined> {
    const shard = this.#broker.shardOf(ref.session);
    for (const subject of [eventSubject.e(ref, shard), eventSubject.anyQ(ref, shard)]) {
      const query = { last_by_subj: subject };
      const stream = streamName.events(shard);
      const raw = await leaderReadPatiently(this.#broker.nc, stream, query, PATIENCE_MS);
      if (raw) return raw.headers.get(H.epoch);
    }
    return undefined;
  }

  #place(ref: RunRef): Place {
    const shard = this.#broker.shardOf(ref.session);
    return { stream: streamName.snapshots(shard), subject: snapshotSubject(ref, shard) };
  }
}

function fields(s: Snapshot): Record<string, string | number> {
  return {
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

function parse(bytes: Uint8Array, what: string): unknown {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes).toString("utf8"));
    return value;
  } catch (cause) {
    throw new LogCorrupt(`${what} is not JSON`, { cause });
  }
}

function decode(raw: RawMessage): Snapshot {
  const body = parse(raw.body, `the snapshot on ${raw.subject}`);
  const isLarge = raw.headers.get(STATE) === "object";
  if (isLarge && !isArtifactRef(body)) {
    throw new LogCorrupt(`the snapshot on ${raw.subject} names no object`);
  }
  return {
    ...mark(raw),
    ...(isLarge && isArtifactRef(body) ? { state: undefined, stateRef: body } : { state: body }),
    streamSeq: whole(raw, POSITION),
    writer: raw.headers.get(H.writer),
    cmd: whole(raw, H.cmd),
  };
}
