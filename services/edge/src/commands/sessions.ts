import type { SessionRef } from "@throughline/broker";
import type { SessionGrants } from "../auth/grants.ts";

/** What of a session's record is needed all the time. */
export interface KnownSession extends SessionGrants {
  readonly title?: string;
  /** Defaults for its runs. */
  readonly options?: Readonly<Record<string, unknown>>;
  readonly created_at: number;
}

/** Where session records are: the broker's store. A miss there has been asked of the leader. */
export interface SessionSource {
  get(ref: SessionRef): Promise<KnownSession | undefined>;
}

interface Cached {
  readonly record: KnownSession;
  readonly until: number;
  readonly bytes: number;
}

/** A change of members takes effect on this node within this time. */
const FRESH_MS = 5_000;
/** Bounded by size: a record may list hundreds of members. */
const KEPT_BYTES = 8 * 1024 * 1024;

/**
 * Session records for authorisation, kept for moments: after a restart, thousands of clients come
 * back to a few sessions. "Not there" is never kept: the session may be created the next moment.
 */
export class SessionRecords {
  readonly #source: SessionSource;
  readonly #now: () => number;
  readonly #cached: Map<string, Cached> = new Map();
  #bytes = 0;
  readonly #asking: Map<string, Promise<KnownSession | undefined>> = new Map();

  constructor(source: SessionSource, now: () => number) {
    this.#source = source;
    this.#now = now;
  }

  /** Rejects with BrokerUnavailable. */
  get(ref: SessionRef): Promise<KnownSession | undefined> {
    const key = `${ref.tenant}/${ref.session}`;
    const cached = this.#cached.get(key);
    if (cached !== undefined && cached.until > this.#now()) return Promise.resolve(cached.record);
    let asking = this.#asking.get(key);
    if (asking === undefined) {
      asking = this.#ask(key, ref);
      this.#asking.set(key, asking);
    }
    return asking;
  }

  /** It has changed: who asks next is told the new one. Other nodes come to know within moments. */
  forget({ tenant, session }: SessionRef): void {
    this.#drop(`${tenant}/${session}`);
  }

  async #ask(key: string, ref: SessionRef): Promise<KnownSession | undefined> {
    try {
      const record = await this.#source.get(ref);
      this.#drop(key);
      if (record !== undefined) this.#keep(key, record);
      return record;
    } finally {
      this.#asking.delete(key);
    }
  }

  /** Entries stand in the order of their time, so what is over and what is too much lies in front. */
  #keep(key: string, record: KnownSession): void {
    const now = this.#now();
    const bytes = 2 * (key.length + JSON.stringify(record).length);
    this.#cached.set(key, { record, until: now + FRESH_MS, bytes });
    this.#bytes += bytes;
    for (const [oldest, { until }] of this.#cached) {
      if (until > now && this.#bytes <= KEPT_BYTES) break;
      this.#drop(oldest);
    }
  }

  #drop(key: string): void {
    this.#bytes -= this.#cached.get(key)?.bytes ?? 0;
    this.#cached.delete(key);
  }
}
