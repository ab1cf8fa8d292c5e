import { isId } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { Bucket } from "./bucket.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { compareAndSet, heldValue, PATIENCE_MS } from "./compare-and-set.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import { N } from "./headers.ts";
import type { SessionRef } from "./ids.ts";
import { readLast } from "./last-read.ts";
import { leaderRead } from "./leader-read.ts";
import { publishAcked } from "./publish.ts";

export const SESSIONS_BUCKET = "TL_SESSIONS";

/** Kept as JSON. Users stand in the value only: they are opaque strings and never part of a key. */
export interface SessionRecord extends SessionRef {
  readonly owner: string;
  readonly title?: string;
  /** Role of each user; the owner is not listed. */
  readonly members: Readonly<Record<string, string>>;
  /** ms since the epoch. */
  readonly created_at: number;
  /** Options of the session's runs that do not say otherwise. */
  readonly options?: Readonly<Record<string, unknown>>;
  /** Hash of the `session.create` that made it: tells a retry from another command with the same id. */
  readonly command_hash: string;
}

export type SessionOutcome =
  | { readonly outcome: "created"; readonly record: SessionRecord }
  /** The first writer won; `record` is theirs. */
  | { readonly outcome: "exists"; readonly record: SessionRecord };

export type SessionStoreBroker = Pick<Broker, "nc" | "jsm" | "replicas"> & {
  readonly reader: Pick<DirectReader, "read">;
};

const PUBLISH_MS = 3_000;
const CREATE_MS = 10_000;
const RETRY_MS = 100;

/** Session records, one key `<tenant>.<session>` each. */
export class SessionStore {
  readonly #broker: SessionStoreBroker;
  readonly #bucket: Bucket;

  constructor(broker: SessionStoreBroker) {
    this.#broker = broker;
    this.#bucket = new Bucket(broker, { name: SESSIONS_BUCKET });
  }

  /**
   * Stores the record unless the session exists. Safe to repeat: our own record found after an
   * unknown outcome counts as created. Rejects with BrokerUnavailable when that stayed unknown.
   */
  async create(record: SessionRecord): Promise<SessionOutcome> {
    const subject = this.#subject(record);
    const body = Buffer.from(JSON.stringify(record));
    const giveUpAt = Date.now() + CREATE_MS;
    await this.#bucket.readyWithin(0);
    let expected = 0;
    let last: unknown;
    while (Date.now() < giveUpAt) {
      const fields = { [N.expectedLastSubject]: expected };
      const outcome = await publishAcked(this.#broker.nc, subject, body, fields, PUBLISH_MS);
      if (outcome.kind === "stored") return { outcome: "created", record };
      last = outcome;
      const raw = await leaderRead(this.#broker.nc, this.#bucket.stream, {
        last_by_subj: subject,
      });
      const found = heldValue(raw);
      if (found) {
        const theirs = decode(found);
        return {
          outcome: Buffer.compare(found.body, body) === 0 ? "created" : "exists",
          record: theirs,
        };
      }
      expected = raw?.streamSeq ?? 0;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    throw new BrokerUnavailable(`session ${record.session} was not confirmed`, { cause: last });
  }

  /** A replica's miss is asked of the leader. Rejects with BrokerUnavailable; nothing is concluded then. */
  async get(ref: SessionRef): Promise<SessionRecord | undefined> {
    const subject = this.#subject(ref);
    await this.#bucket.readyWithin(0);
    const raw = await readLast(this.#broker, { stream: this.#bucket.stream, subject });
    return raw && decode(raw);
  }

  /**
   * Replaces the record by `change` of it, on the expectation of what was read. `change` is asked
   * again when another was faster, or when an answer was lost: on its own result it must give the
   * same. The record that it returns unchanged is not written. Undefined: there is no such session.
   * Rejects with BrokerUnavailable, ValueTooLarge, or what `change` throws.
   */
  async update(
    ref: SessionRef,
    change: (record: SessionRecord) => SessionRecord,
  ): Promise<SessionRecord | undefined> {
    const place = { stream: this.#bucket.stream, subject: this.#subject(ref) };
    await this.#bucket.readyWithin(PATIENCE_MS);
    let stands: SessionRecord | undefined;
    await compareAndSet(this.#broker.nc, place, (held) => {
      stands = held && decode(held);
      if (!held || !stands) return undefined;
      stands = change(stands);
      if (stands.tenant !== ref.tenant || stands.session !== ref.session) {
        throw new RangeError("a session's record stays the session's");
      }
      const body = Buffer.from(JSON.stringify(stands));
      return Buffer.compare(body, held.body) === 0 ? undefined : { body };
    });
    return stands;
  }

  #subject(ref: SessionRef): string {
    // Checked where they enter; a wildcard here would read a stranger's session.
    if (!isId(ref.tenant) || !isId(ref.session)) {
      throw new RangeError("tenant and session must be ids before they become part of a key");
    }
    return this.#bucket.subject(`${ref.tenant}.${ref.session}`);
  }
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isRecord(value: unknown): value is SessionRecord {
  if (typeof value !== "object" || value === null) return false;
  const member = (name: string): unknown => Reflect.get(value, name);
  return (
    ["tenant", "session", "owner", "command_hash"].every((n) => typeof member(n) === "string") &&
    typeof member("created_at") === "number" &&
    typeof member("members") === "object" &&
    member("members") !== null &&
    (member("options") === undefined || isObject(member("options")))
  );
}

function decode(raw: RawMessage): SessionRecord {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(raw.body).toString("utf8"));
  } catch (cause) {
    throw new LogCorrupt(`the session record on ${raw.subject} is not JSON`, { cause });
  }
  if (!isRecord(value)) throw new LogCorrupt(`what is on ${raw.subject} is no session record`);
  return value;
}
