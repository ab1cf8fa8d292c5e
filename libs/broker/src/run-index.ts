import { isId, type RunStatus } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { Bucket } from "./bucket.ts";
import { compareAndSet, PATIENCE_MS } from "./compare-and-set.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { LogCorrupt } from "./errors.ts";
import type { RunRef, SessionRef } from "./ids.ts";
import { readKeys } from "./keys-read.ts";
import { readLast } from "./last-read.ts";

export const RUNS_BUCKET = "TL_RUNS";

/** A line of the list of a session's runs. */
export interface RunEntry extends RunRef {
  readonly agent: string;
  readonly status: RunStatus;
  /** Who started it. */
  readonly by: string;
  /** ms since the epoch. */
  readonly queued_at: number;
  readonly ended_at?: number | undefined;
  readonly retry_of?: string | undefined;
  readonly title?: string | undefined;
}

export type RunIndexBroker = Pick<Broker, "nc" | "jsm" | "replicas" | "historyMaxAgeMs"> & {
  readonly reader: Pick<DirectReader, "read">;
};

const LISTED = 100;

/** 0: nobody has begun it, 1: under way, 2: ended. */
function rank(entry: RunEntry): number {
  if (entry.ended_at !== undefined) return 2;
  return entry.status === "queued" || entry.status === "absent" ? 0 : 1;
}

/**
 * Pure: what is kept when `offered` comes after `held`. An entry never goes back: the one that is
 * further on stays, of two ended ones the first, and takes from the other what it does not say itself.
 */
export function mergeEntries(held: RunEntry | undefined, offered: RunEntry): RunEntry {
  if (!held) return offered;
  const stays = rank(offered) < rank(held) || rank(held) === 2;
  const [kept, other] = stays ? [held, offered] : [offered, held];
  return {
    ...kept,
    ended_at: kept.ended_at ?? other.ended_at,
    retry_of: kept.retry_of ?? other.retry_of,
    title: kept.title ?? other.title,
  };
}

/** Which runs a session has and how they stand: one key `<tenant>.<session>.<run>` each. */
export class RunIndex {
  readonly #broker: RunIndexBroker;
  readonly #bucket: Bucket;

  constructor(broker: RunIndexBroker) {
    this.#broker = broker;
    this.#bucket = new Bucket(broker, { name: RUNS_BUCKET, ttlMs: broker.historyMaxAgeMs });
  }

  /** Safe to repeat, and from edge and worker at once. Rejects with BrokerUnavailable after 20 s. */
  async put(entry: RunEntry): Promise<void> {
    const place = { stream: this.#bucket.stream, subject: this.#subject(entry) };
    await this.#bucket.readyWithin(PATIENCE_MS);
    await compareAndSet(this.#broker.nc, place, (held) => {
      const body = Buffer.from(JSON.stringify(mergeEntries(held && decode(held), entry)));
      return held && Buffer.compare(body, held.body) === 0 ? undefined : { body };
    });
  }

  /** Newest first (by `queued_at`), at most `limit` (default 100). Rejects with BrokerUnavailable. */
  async list(ref: SessionRef, limit: number = LISTED): Promise<readonly RunEntry[]> {
    const filter = this.#bucket.subject(`${token(ref.tenant)}.${token(ref.session)}.*`);
    await this.#bucket.readyWithin(0);
    const found = await readKeys(this.#broker, this.#bucket.stream, filter);
    return found
      .map(decode)
      .toSorted((a, b) => b.queued_at - a.queued_at || (a.run < b.run ? 1 : -1))
      .slice(0, limit);
  }

  /** A replica's miss is asked of the leader; its entry may be some milliseconds old. */
  async get(ref: RunRef): Promise<RunEntry | undefined> {
    const place = { stream: this.#bucket.stream, subject: this.#subject(ref) };
    await this.#bucket.readyWithin(0);
    const held = await readLast(this.#broker, place);
    return held && decode(held);
  }

  #subject(ref: RunRef): string {
    return this.#bucket.subject(`${token(ref.tenant)}.${token(ref.session)}.${token(ref.run)}`);
  }
}

/** Checked where they become a key: a wildcard here would list a stranger's runs. */
function token(id: string): string {
  if (!isId(id)) throw new RangeError("tenant, session and run must be ids before they are a key");
  return id;
}

function isEntry(value: unknown): value is RunEntry {
  if (typeof value !== "object" || value === null) return false;
  const member = (name: string): unknown => Reflect.get(value, name);
  const texts = ["tenant", "session", "run", "agent", "status", "by"];
  return (
    texts.every((name) => typeof member(name) === "string") &&
    typeof member("queued_at") === "number" &&
    ["number", "undefined"].includes(typeof member("ended_at"))
  );
}

function decode(raw: RawMessage): RunEntry {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(raw.body).toString("utf8"));
  } catch (cause) {
    throw new LogCorrupt(`the entry on ${raw.subject} is not JSON`, { cause });
  }
  if (!isEntry(value)) throw new LogCorrupt(`what is on ${raw.subject} is no entry of a run`);
  return value;
}
