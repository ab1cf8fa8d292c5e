import {
  type DurableEvent,
  HoleError,
  initialRunState,
  isEventType,
  reduce,
  type RunState,
  type UnknownEvent,
} from "@throughline/protocol";
import { durableEventSchema, runStateSchema } from "@throughline/protocol/schemas";
import type { Broker } from "./broker.ts";
import { LogCorrupt } from "./errors.ts";
import type { EventLog } from "./event-log.ts";
import { type LogMessage, logMessage } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead } from "./leader-read.ts";
import type { RunPosition } from "./append.ts";
import type { Snapshot, SnapshotStore } from "./snapshot-store.ts";
import { eventSubject, streamName } from "./subjects.ts";

/** A run as its log tells it, read through the leader: what a takeover goes on from. */
export interface RecoveredRun {
  readonly state: RunState;
  /** What the next append continues. */
  readonly position: RunPosition;
  /** The last attempt that wrote; the takeover's is the next. */
  readonly attempt: number;
}

export type RecoverBroker = Pick<Broker, "nc" | "shardOf"> & {
  readonly events: Pick<EventLog, "read">;
};

/** The job as it was delivered: the run's first event, which may expire before the others. */
export interface QueuedRun {
  readonly streamSeq: number;
  readonly epoch: string;
  readonly event: DurableEvent<"run.queued">;
}

/** A job that has expired can only be known from a snapshot. */
type KnownJob = Omit<QueuedRun, "event"> & Partial<Pick<QueuedRun, "event">>;

function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new LogCorrupt(`${where} is not JSON`, { cause });
  }
}

/** A type that this version does not know has a place in the order, and no more. */
function isUnknownEvent(value: unknown): value is UnknownEvent {
  if (typeof value !== "object" || value === null) return false;
  const type: unknown = Reflect.get(value, "type");
  const seq: unknown = Reflect.get(value, "seq");
  return typeof type === "string" && !isEventType(type) && typeof seq === "number";
}

function parseEvent(text: string, where: string): DurableEvent | UnknownEvent {
  const value = parseJson(text, where);
  const parsed = durableEventSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  if (isUnknownEvent(value)) return value;
  throw new LogCorrupt(`${where} is no event`, { cause: parsed.error });
}

/** Reads the event of a `q` message. Throws LogCorrupt. */
export function parseQueued(body: Uint8Array, where: string): DurableEvent<"run.queued"> {
  const value = parseJson(Buffer.from(body).toString("utf8"), where);
  const parsed = durableEventSchema.safeParse(value);
  if (!parsed.success) throw new LogCorrupt(`${where} is no event`, { cause: parsed.error });
  if (parsed.data.type !== "run.queued") throw new LogCorrupt(`${where} is not run.queued`);
  return parsed.data;
}

/** Applies a stored message. Throws HoleError (its predecessor was not applied) or LogCorrupt. */
function applyMessage(state: RunState, message: LogMessage): RunState {
  const where = `a line of ${message.run} at ${message.streamSeq}`;
  const lines = Buffer.from(message.body).toString("utf8").split("\n");
  const told = message.lastSeq - message.firstSeq + 1;
  if (lines.length !== told) {
    throw new LogCorrupt(
      `${message.run} at ${message.streamSeq} has ${lines.length} lines, not ${told}`,
    );
  }
  return lines.reduce((held, line) => reduce(held, parseEvent(line, where)), state);
}

/** A snapshot of another incarnation, or one that this version cannot read, is passed over: the log has it all. */
function usable(snapshot: Snapshot | undefined, epoch: string): RunState | undefined {
  if (snapshot?.epoch !== epoch) return undefined;
  const parsed = runStateSchema.safeParse(snapshot.state);
  return parsed.success && parsed.data.seq === snapshot.seq ? parsed.data : undefined;
}

/**
 * Snapshot and the events after it, up to the leader's last. Pages may come from replicas,
 * but they count only once they reach that last message. "ended": the terminal is stored.
 * Rejects with BrokerUnavailable, or with LogCorrupt where the log contradicts itself.
 */
export async function recover(
  broker: RecoverBroker,
  snapshots: Pick<SnapshotStore, "read">,
  ref: RunRef,
  queued: KnownJob,
): Promise<RecoveredRun | "ended"> {
  // The snapshot first: read after the last message, it could be ahead of it.
  const snapshot = await snapshots.read(ref, "leader");
  const shard = broker.shardOf(ref.session);
  const raw = await leaderRead(broker.nc, streamName.events(shard), {
    last_by_subj: eventSubject.e(ref, shard),
  });
  if (!raw) throw new LogCorrupt(`the events of ${ref.run} are gone`);
  const last = logMessage(raw.subject, raw.streamSeq, raw.headers, raw.body);
  if (last.end) return "ended";
  if (last.epoch !== queued.epoch) {
    throw new LogCorrupt(`${ref.run} is of epoch ${last.epoch}, its job of ${queued.epoch}`);
  }
  const held = usable(snapshot, queued.epoch);
  // From the snapshot's own message on, inclusive: it need not cover all lines of it.
  const after =
    held && snapshot ? Math.max(queued.streamSeq, snapshot.streamSeq - 1) : queued.streamSeq;
  const begin = held ?? (queued.event && reduce(initialRunState(ref.run), queued.event));
  if (!begin) throw new LogCorrupt(`the job of ${ref.run} has expired, and no snapshot is there`);
  const { state, reached } = await readUpTo(broker, ref, begin, after, last);
  return {
    state,
    position: {
      seq: reached.lastSeq,
      streamSeq: reached.streamSeq,
      eSeq: reached.streamSeq,
      cmd: Math.max(reached.cmd, held && snapshot ? snapshot.cmd : 0),
    },
    attempt: reached.attempt,
  };
}

async function readUpTo(
  broker: RecoverBroker,
  ref: RunRef,
  begin: RunState,
  after: number,
  last: LogMessage,
): Promise<{ state: RunState; reached: LogMessage }> {
  let state = begin;
  let position = after;
  while (position < last.streamSeq) {
    const page = await broker.events.read({ kind: "run", ...ref }, position, {
      upTo: last.streamSeq,
    });
    for (const message of page.messages) {
      if (message.streamSeq > last.streamSeq) break;
      position = message.streamSeq;
      state = applied(state, message);
    }
    if (page.end && position < last.streamSeq) {
      throw new LogCorrupt(`${ref.run} has nothing at ${last.streamSeq}, which its leader named`);
    }
  }
  if (state.seq !== last.lastSeq) {
    throw new LogCorrupt(
      `${ref.run} reaches seq ${state.seq}, its last message says ${last.lastSeq}`,
    );
  }
  return { state, reached: last };
}

function applied(state: RunState, message: LogMessage): RunState {
  try {
    return applyMessage(state, message);
  } catch (error) {
    if (!(error instanceof HoleError)) throw error;
    throw new LogCorrupt(`${message.run} has a hole before ${message.streamSeq}`, { cause: error });
  }
}
