import { createHash } from "node:crypto";
import { isId } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { Bucket } from "./bucket.ts";
import { compareAndSet, heldValue, PATIENCE_MS } from "./compare-and-set.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { leaderRead } from "./leader-read.ts";

export const USER_SESSIONS_BUCKET = "TL_USER_SESSIONS";

/** A line of the list of a user's sessions. What changes is in the session's record. */
export interface SessionEntry {
  readonly session: string;
  /** ms since the epoch; of the session, not of the membership. */
  readonly created_at: number;
  readonly title?: string | undefined;
}

export interface SessionPage {
  readonly entries: readonly SessionEntry[];
  /** `before` of the next page; undefined on the last. */
  readonly next?: string;
}

export type SessionIndexBroker = Pick<Broker, "nc" | "jsm" | "replicas"> & {
  readonly reader: Pick<DirectReader, "read">;
};

/** Most entries of one page: they are read one exact key each. */
const MOST = 200;
/** Digits of a time in ms in base 36: sorts as text until the year 5188. */
const TIME_DIGITS = 9;
const SORT_KEY = /^([0-9a-z]{9})\.([A-Za-z0-9_-]{1,64})$/;

/**
 * The sessions that a user owns or is a member of, newest first: one key
 * `<tenant>.<hash of user>.<time>.<session>` each, so that the keys alone say the order.
 */
export class SessionIndex {
  readonly #broker: SessionIndexBroker;
  readonly #bucket: Bucket;

  constructor(broker: SessionIndexBroker) {
    this.#broker = broker;
    this.#bucket = new Bucket(broker, { name: USER_SESSIONS_BUCKET });
  }

  /** Safe to repeat. Rejects with BrokerUnavailable after 20 s. */
  async add(tenant: string, user: string, entry: SessionEntry): Promise<void> {
    const subject = this.#bucket.subject(`${userKey(tenant, user)}.${sortKey(entry)}`);
    const body = Buffer.from(JSON.stringify(entry));
    await this.#bucket.readyWithin(PATIENCE_MS);
    await compareAndSet(this.#broker.nc, { stream: this.#bucket.stream, subject }, (held) =>
      held && Buffer.compare(held.body, body) === 0 ? undefined : { body },
    );
  }

  /** The user has no part in the session any more. Safe to repeat. */
  async remove(
    tenant: string,
    user: string,
    entry: Pick<SessionEntry, "session" | "created_at">,
  ): Promise<void> {
    const subject = this.#bucket.subject(`${userKey(tenant, user)}.${sortKey(entry)}`);
    await this.#bucket.readyWithin(0);
    try {
      await this.#broker.jsm.streams.purge(this.#bucket.stream, { filter: subject });
    } catch (cause) {
      throw new BrokerUnavailable("a session could not be taken off a list", { cause });
    }
  }

  /**
   * Newest first, at most `limit` (up to 200); `before` is an earlier page's `next`. The leader names
   * the keys. Rejects with BrokerUnavailable, or RangeError for a `before` that no page gave.
   */
  async list(
    tenant: string,
    user: string,
    options: { readonly limit: number; readonly before?: string | undefined },
  ): Promise<SessionPage> {
    const { before } = options;
    if (before !== undefined && !SORT_KEY.test(before))
      throw new RangeError("before is no position");
    const limit = Math.max(1, Math.min(MOST, options.limit));
    const prefix = this.#bucket.subject(`${userKey(tenant, user)}.`);
    const keys = (await this.#keys(`${prefix}>`))
      .map((subject) => subject.slice(prefix.length))
      .filter((key) => before === undefined || key < before)
      .toSorted((a, b) => (a < b ? 1 : -1));
    const page = keys.slice(0, limit);
    const found = await this.#read(page.map((key) => prefix + key));
    const last = page.at(-1);
    const more = keys.length > page.length && last !== undefined;
    return { entries: found.map(decode), ...(more ? { next: last } : {}) };
  }

  async #keys(filter: string): Promise<string[]> {
    await this.#bucket.readyWithin(0);
    try {
      const { state } = await this.#broker.jsm.streams.info(this.#bucket.stream, {
        subjects_filter: filter,
      });
      return Object.keys(state.subjects ?? {});
    } catch (cause) {
      throw new BrokerUnavailable("the list of sessions could not be read", { cause });
    }
  }

  /** In the order asked for; what a replica has not yet is asked of the leader. */
  async #read(subjects: readonly string[]): Promise<RawMessage[]> {
    if (subjects.length === 0) return [];
    const { stream } = this.#bucket;
    const { messages } = await this.#broker.reader.read(stream, {
      multi_last: subjects,
      batch: subjects.length,
    });
    const near = new Map(messages.map((raw) => [raw.subject, raw]));
    const found = await Promise.all(
      subjects.map(async (subject) =>
        heldValue(
          near.get(subject) ??
            (await leaderRead(this.#broker.nc, stream, { last_by_subj: subject })),
        ),
      ),
    );
    return found.filter((raw) => raw !== undefined);
  }
}

/** A user is an opaque string of any characters and length: its hash is a token, whatever it holds. */
function userKey(tenant: string, user: string): string {
  if (!isId(tenant)) throw new RangeError("a tenant must be an id before it is a key");
  const digest = createHash("sha256")
    .update(JSON.stringify([tenant, user]))
    .digest("base64url");
  return `${tenant}.${digest.slice(0, 22)}`;
}

function sortKey({ session, created_at }: Pick<SessionEntry, "session" | "created_at">): string {
  if (!isId(session)) throw new RangeError("a session must be an id before it is a key");
  if (!Number.isSafeInteger(created_at) || created_at < 0) {
    throw new RangeError("created_at must be milliseconds since the epoch");
  }
  return `${created_at.toString(36).padStart(TIME_DIGITS, "0")}.${session}`;
}

function isEntry(value: unknown): value is SessionEntry {
  if (typeof value !== "object" || value === null) return false;
  return (
    isId(Reflect.get(value, "session")) && typeof Reflect.get(value, "created_at") === "number"
  );
}

function decode(raw: RawMessage): SessionEntry {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(raw.body).toString("utf8"));
  } catch (cause) {
    throw new LogCorrupt(`the entry on ${raw.subject} is not JSON`, { cause });
  }
  if (!isEntry(value)) throw new LogCorrupt(`what is on ${raw.subject} is no entry of a session`);
  return value;
}
