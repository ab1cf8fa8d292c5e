import type { LogMessage, RunRef } from "@throughline/broker";
import {
  cursorTag,
  type DurableEvent,
  formatCursor,
  HoleError,
  initialRunState,
  isEventType,
  reduce,
  type RunState,
  type UnknownEvent,
} from "@throughline/protocol";
import { durableEventSchema, runStateSchema } from "@throughline/protocol/schemas";
import type { EventSource } from "../fanout/log.ts";
import type { Reads } from "../fanout/reads.ts";
import type { SnapshotSource, StoredSnapshot } from "../fanout/start.ts";

/** A run's state as of one of its stored messages. */
export interface RunAt {
  readonly state: RunState;
  readonly streamSeq: number;
  readonly epoch: string;
}

/** What is stored of a run cannot be read as one. The run goes on; who asks for its state is told. */
export class RunUnreadable extends Error {
  override readonly name = "RunUnreadable";
}

/** A snapshot is behind by some 200 events at most: mostly one read. */
const READ = { messages: 256, bytes: 256 * 1024 } as const;

/**
 * What runs have come to: their newest snapshot and the events behind it. The one place of this node
 * where events are read as such; what follows them live never does.
 */
export class RunStates {
  readonly #log: Pick<EventSource, "read" | "last">;
  readonly #snapshots: SnapshotSource;
  readonly #reads: Reads;

  constructor(log: Pick<EventSource, "read" | "last">, snapshots: SnapshotSource, reads: Reads) {
    this.#log = log;
    this.#snapshots = snapshots;
    this.#reads = reads;
  }

  /** The state as of everything that is stored, as the leader says. Undefined: there is nothing of the run. */
  async current(ref: RunRef): Promise<RunAt | undefined> {
    // The snapshot first: read after the last message, it could be ahead of it.
    const base = await this.snapshot(ref);
    const last = await this.#last(ref);
    if (last === undefined) return base;
    const own = base?.epoch === last.epoch ? base : undefined;
    return this.advanced(ref, own, last.streamSeq);
  }

  /** The newest snapshot, maybe an older one of a replica's. One that cannot be read is as none. */
  async snapshot(ref: RunRef): Promise<RunAt | undefined> {
    return readable(await this.#reads.run(() => this.#snapshots.read(ref, "replica")));
  }

  /** Of the incarnation that is in the log now, as its leader says; undefined where there is nothing of the run. */
  async epochInLog(ref: RunRef): Promise<string | undefined> {
    return (await this.#last(ref))?.epoch;
  }

  #last(ref: RunRef): Promise<LogMessage | undefined> {
    return this.#reads.run(() => this.#log.last({ kind: "run", ...ref }, "leader"));
  }

  /**
   * `base` with all that is stored behind it, at or below `upTo`; without one, from the run's first
   * event on. What lies between may have expired: then it is the leader's snapshot, or nothing.
   * Rejects with BrokerUnavailable or RunUnreadable.
   */
  async advanced(ref: RunRef, base: RunAt | undefined, upTo: number): Promise<RunAt | undefined> {
    if (base !== undefined && isOver(base)) return base;
    const whole = await this.#read(ref, base, upTo);
    if (whole !== "hole") return whole;
    const leaders = readable(await this.#reads.run(() => this.#snapshots.read(ref, "leader")));
    const again =
      leaders && leaders.streamSeq <= upTo ? await this.#read(ref, leaders, upTo) : base;
    return again === "hole" ? leaders : again;
  }

  async #read(
    ref: RunRef,
    base: RunAt | undefined,
    upTo: number,
  ): Promise<RunAt | "hole" | undefined> {
    let run = base;
    // From the snapshot's own message on, inclusive: it need not cover all lines of it.
    let after = base === undefined ? 0 : base.streamSeq - 1;
    for (;;) {
      const page = await this.#reads.run(() =>
        this.#log.read({ kind: "run", ...ref }, after, { ...READ, upTo }),
      );
      for (const message of page.messages) {
        if (message.streamSeq > upTo) return run;
        // Another incarnation's snapshot: the run's own log has it all.
        if (run !== undefined && run.epoch !== message.epoch)
          return this.#read(ref, undefined, upTo);
        const state = applied(run?.state ?? initialRunState(ref.run), message);
        if (state === "hole") return "hole";
        run = { state, streamSeq: message.streamSeq, epoch: message.epoch };
        after = message.streamSeq;
      }
      if (page.end) return run;
    }
  }
}

/** The place in the run's own log that the state is as of. */
export function cursorOf(run: string, { state, streamSeq, epoch }: RunAt): string {
  return formatCursor({ seq: state.seq, streamSeq, tag: cursorTag(run, epoch) });
}

export function isOver({ state }: RunAt): boolean {
  return state.ended_at !== undefined;
}

function readable(snapshot: StoredSnapshot | undefined): RunAt | undefined {
  if (snapshot === undefined) return undefined;
  const { seq, streamSeq, epoch } = snapshot;
  const parsed = runStateSchema.safeParse(snapshot.state);
  if (!parsed.success || parsed.data.seq !== seq) return undefined;
  return { state: parsed.data, streamSeq, epoch };
}

function applied(state: RunState, message: LogMessage): RunState | "hole" {
  const lines = Buffer.from(message.body).toString("utf8").split("\n");
  try {
    return lines.reduce((held, line) => reduce(held, parsedEvent(line, message)), state);
  } catch (error) {
    if (error instanceof HoleError) return "hole";
    throw error;
  }
}

function parsedEvent(line: string, message: LogMessage): DurableEvent | UnknownEvent {
  const where = `a line of ${message.run} at ${message.streamSeq}`;
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new RunUnreadable(`${where} is no JSON`, { cause });
  }
  const parsed = durableEventSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  // A type that this version does not know has a place in the order, and no more.
  if (isUnknown(value)) return value;
  throw new RunUnreadable(`${where} is no event`, { cause: parsed.error });
}

function isUnknown(value: unknown): value is UnknownEvent {
  if (typeof value !== "object" || value === null) return false;
  const type: unknown = Reflect.get(value, "type");
  return typeof type === "string" && !isEventType(type) && "seq" in value;
}
