import { Kvm } from "@nats-io/kv";
import { nanos } from "@nats-io/nats-core";
import type { Broker } from "./broker.ts";
import { BrokerUnavailable } from "./errors.ts";

/** Stream behind a KV bucket, and the subject of one of its keys. */
const bucketStream = (bucket: string): string => `KV_${bucket}`;
const bucketSubject = (bucket: string, key: string): string => `$KV.${bucket}.${key}`;

const RETRY_MS = 100;

export interface BucketOptions {
  readonly name: string;
  /** Entries not written anew within it vanish. */
  readonly ttlMs?: number;
}

/**
 * A KV bucket, made on first use and never twice. Values are read and written by the streams'
 * own requests, since the library's reads may be served by a replica without saying so.
 */
export class Bucket {
  readonly stream: string;
  readonly #broker: Pick<Broker, "nc" | "jsm" | "replicas">;
  readonly #options: BucketOptions;
  #made: Promise<void> | undefined;

  constructor(broker: Pick<Broker, "nc" | "jsm" | "replicas">, options: BucketOptions) {
    this.#broker = broker;
    this.#options = options;
    this.stream = bucketStream(options.name);
  }

  subject(key: string): string {
    return bucketSubject(this.#options.name, key);
  }

  /** Rejects with the library's error while JetStream is away; the next call tries again. */
  ready(): Promise<void> {
    this.#made ??= this.#make().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    });
    return this.#made;
  }

  /** `ready`, tried again for so long (ms) while JetStream is away. Rejects with BrokerUnavailable. */
  async readyWithin(patienceMs: number): Promise<void> {
    const giveUpAt = Date.now() + patienceMs;
    for (;;) {
      try {
        return await this.ready();
      } catch (cause) {
        if (Date.now() >= giveUpAt || this.#broker.nc.isClosed()) {
          throw new BrokerUnavailable(`${this.#options.name} is not there yet`, { cause });
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  async #make(): Promise<void> {
    const { nc, replicas } = this.#broker;
    const { name, ttlMs } = this.#options;
    const ttl = ttlMs === undefined ? {} : { ttl: ttlMs };
    // An existing bucket is taken as it is.
    await new Kvm(nc).create(name, { replicas, history: 1, ...ttl });
  }

  /** Brings an existing bucket to this time; for those who write, so that readers need not know it. */
  async setTtl(ttlMs: number): Promise<void> {
    await this.ready();
    const { config } = await this.#broker.jsm.streams.info(this.stream);
    const age = nanos(ttlMs);
    if (config.max_age === age) return;
    const window = Math.min(config.duplicate_window, age);
    await this.#broker.jsm.streams.update(this.stream, { max_age: age, duplicate_window: window });
  }
}
