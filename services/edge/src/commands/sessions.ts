import type { SessionRef } from "@throughline/broker";
import type { SessionGrants } from "../auth/grants.ts";

/** Where session records are: the broker's store. A miss there has been asked of the leader. */
export interface SessionSource {
  get(ref: SessionRef): Promise<SessionGrants | undefined>;
}

interface Cached {
  readonly record: SessionGrants;
  readonly until: number;
}

/** A change of members takes effect on this node within this time. */
const FRESH_MS = 5_000;
const KEPT = 10_000;

/**
 * Session records for authorisation, kept for moments: after a restart, thousands of clients come
 * back to a few sessions. "Not there" is never kept: the session may be created the next moment.
 */
export class SessionRecords {
  readonly #source: SessionSource;
  readonly #now: () => number;
  readonly #cached: Map<string, Cached> = new Map();
  readonly #asking: Map<string, Promise<SessionGrants | undefined>> = new Map();

  constructor(source: SessionSource, now: () => number) {
    this.#source = source;
    this.#now = now;
  }

  /** Rejects with BrokerUnavailable. */
  get(ref: SessionRef): Promise<SessionGrants | undefined> {
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

  async #ask(key: string, ref: SessionRef): Promise<SessionGrants | undefined> {
    try {
      const record = await this.#source.get(ref);
      this.#cached.delete(key);
      if (record !== undefined) this.#keep(key, record);
      return record;
    } finally {
      this.#asking.delete(key);
    }
  }

  #keep(key: string, record: SessionGrants): void {
    this.#cached.set(key, { record, until: this.#now() + FRESH_MS });
    if (this.#cached.size <= KEPT) return;
    for (const oldest of this.#cached.keys()) {
      this.#cached.delete(oldest);
      break;
    }
  }
}
