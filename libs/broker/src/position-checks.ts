import type { NatsConnection } from "@nats-io/nats-core";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { leaderRead } from "./leader-read.ts";

/** What a tail shows to the checks. */
export interface Checkable {
  readonly stream: string;
  /** Performance clock, ms. */
  readonly lastActivity: number;
  /** Nothing more can come (the run has ended, or the tail is closed): no more checks. */
  readonly isDone: boolean;
  /** Exact subjects whose last message is asked for, many tails in one request. */
  subjects(): Iterable<string>;
  /** Filters whose last message is asked for one by one (wildcards; dear, so only session tails have any). */
  filters(): Iterable<string>;
  /** The last stored message of a subject or filter, as a replica or the leader knows it. */
  found(of: string, last: RawMessage | undefined, by: "replica" | "leader"): void;
}

export interface CheckHost {
  readonly nc: NatsConnection;
  readonly reader: DirectReader;
  readonly connection: "up" | "down";
}

/**
 * When a quiet tail is looked at, in ms after its last delivery (±20 %). Core NATS is
 * at-most-once and the last message of a burst has no successor that would reveal its loss:
 * under 50 leader faults 16 of 260,000 stored messages were republished to nobody.
 */
const STAGES_MS = [250, 1_000, 5_000, 30_000] as const;
const EVERY_MS = 30_000;
/** The stage that asks the leader: replicas may lag, so one look at the authority before going quiet. */
const LEADER_STAGE = STAGES_MS.length - 1;
const TICK_MS = 50;
/** Subjects in one `multi_last` request (the server's cap is 1,024 answers). */
const BATCH = 256;
/** At most this many tails are looked at in a tick: 4,000 a second and node. */
const PER_TICK = 200;
const SPREAD_AFTER_RECONNECT_MS = 1_000;

interface Entry {
  readonly tail: Checkable;
  stage: number;
  dueAt: number;
  seenActivity: number;
}

/** Looks whether quiet tails have missed something: batched by stream, rate-limited, spread after a reconnect. */
export class PositionChecks {
  readonly #host: CheckHost;
  readonly #entries: Map<Checkable, Entry> = new Map();
  /** Entries by due tick, so that a tick touches only what is due. */
  readonly #wheel: Map<number, Set<Entry>> = new Map();
  #tick = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Requests made so far, for metrics. */
  requests = 0;
  /** Losses that a check revealed, for metrics. */
  repairs = 0;

  constructor(host: CheckHost) {
    this.#host = host;
  }

  add(tail: Checkable): void {
    const entry: Entry = { tail, stage: 0, dueAt: 0, seenActivity: tail.lastActivity };
    this.#entries.set(tail, entry);
    this.#schedule(entry, STAGES_MS[0]);
    if (this.#timer === undefined) {
      this.#tick = Math.floor(performance.now() / TICK_MS);
      this.#timer = setInterval(() => this.#turn(), TICK_MS);
      this.#timer.unref();
    }
  }

  remove(tail: Checkable): void {
    const entry = this.#entries.get(tail);
    if (!entry) return;
    this.#entries.delete(tail);
    this.#wheel.get(entry.dueAt)?.delete(entry);
    if (this.#entries.size === 0) this.#stop();
  }

  /** After a reconnect every tail may have missed live copies. */
  allDue(): void {
    for (const entry of this.#entries.values()) {
      this.#wheel.get(entry.dueAt)?.delete(entry);
      entry.stage = 0;
      this.#schedule(entry, Math.random() * SPREAD_AFTER_RECONNECT_MS);
    }
  }

  close(): void {
    this.#entries.clear();
    this.#wheel.clear();
    this.#stop();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #schedule(entry: Entry, inMs: number): void {
    const now = Math.floor(performance.now() / TICK_MS);
    entry.dueAt = Math.max(now, this.#tick) + 1 + Math.floor(inMs / TICK_MS);
    let slot = this.#wheel.get(entry.dueAt);
    if (!slot) this.#wheel.set(entry.dueAt, (slot = new Set()));
    slot.add(entry);
  }

  #turn(): void {
    const now = Math.floor(performance.now() / TICK_MS);
    const due: Entry[] = [];
    while (this.#tick < now) {
      this.#tick += 1;
      const slot = this.#wheel.get(this.#tick);
      if (!slot) continue;
      this.#wheel.delete(this.#tick);
      for (const entry of slot) {
        if (due.length < PER_TICK && this.#host.connection === "up") due.push(entry);
        else this.#schedule(entry, 0);
      }
    }
    const batches = new Map<string, Map<string, Entry[]>>();
    for (const entry of due) this.#look(entry, batches);
    for (const [stream, bySubject] of batches) this.#ask(stream, bySubject);
  }

  #look(entry: Entry, batches: Map<string, Map<string, Entry[]>>): void {
    const { tail } = entry;
    if (tail.isDone) {
      this.#entries.delete(tail);
      return;
    }
    if (tail.lastActivity > entry.seenActivity) {
      // It was busy meanwhile: what was delivered proves what lay before it. Start over from there.
      entry.seenActivity = tail.lastActivity;
      entry.stage = 0;
      const quietFor = performance.now() - tail.lastActivity;
      if (quietFor < STAGES_MS[0]) {
        this.#schedule(entry, jittered(STAGES_MS[0] - quietFor));
        return;
      }
    }
    const byLeader = entry.stage === LEADER_STAGE;
    for (const subject of tail.subjects()) {
      if (byLeader) this.#askLeader(tail, subject);
      else collect(batches, tail.stream, subject, entry);
    }
    for (const filter of tail.filters()) {
      if (byLeader) this.#askLeader(tail, filter);
      else this.#askReplica(tail, filter);
    }
    const passed = STAGES_MS[entry.stage] ?? 0;
    entry.stage += 1;
    const next = STAGES_MS[entry.stage];
    this.#schedule(entry, jittered(next === undefined ? EVERY_MS : next - passed));
  }

  #ask(stream: string, bySubject: Map<string, Entry[]>): void {
    const subjects = [...bySubject.keys()];
    for (let i = 0; i < subjects.length; i += BATCH) {
      const slice = subjects.slice(i, i + BATCH);
      this.requests += 1;
      this.#host.reader
        .read(stream, { multi_last: slice, batch: slice.length })
        .then(({ messages }) => {
          const last = new Map(messages.map((message) => [message.subject, message]));
          for (const subject of slice) {
            for (const { tail } of bySubject.get(subject) ?? []) {
              tail.found(subject, last.get(subject), "replica");
            }
          }
        })
        .catch(() => this.#again(slice.flatMap((subject) => bySubject.get(subject) ?? [])));
    }
  }

  #askReplica(tail: Checkable, filter: string): void {
    this.requests += 1;
    this.#host.reader
      .read(tail.stream, { last_by_subj: filter })
      .then(({ messages }) => tail.found(filter, messages[0], "replica"))
      .catch(() => this.#again([this.#entries.get(tail)]));
  }

  #askLeader(tail: Checkable, of: string): void {
    this.requests += 1;
    leaderRead(this.#host.nc, tail.stream, { last_by_subj: of })
      .then((last) => tail.found(of, last, "leader"))
      .catch(() => this.#again([this.#entries.get(tail)]));
  }

  /** NATS did not answer: the check is still owed, and soon. */
  #again(entries: readonly (Entry | undefined)[]): void {
    for (const entry of new Set(entries)) {
      if (!entry || this.#entries.get(entry.tail) !== entry) continue;
      this.#wheel.get(entry.dueAt)?.delete(entry);
      entry.stage = Math.max(0, entry.stage - 1);
      this.#schedule(entry, jittered(STAGES_MS[1]));
    }
  }
}

function collect(
  batches: Map<string, Map<string, Entry[]>>,
  stream: string,
  subject: string,
  entry: Entry,
): void {
  const bySubject = batches.get(stream) ?? new Map<string, Entry[]>();
  batches.set(stream, bySubject);
  const entries = bySubject.get(subject);
  if (entries) entries.push(entry);
  else bySubject.set(subject, [entry]);
}

function jittered(ms: number): number {
  return ms * (0.8 + Math.random() * 0.4);
}
