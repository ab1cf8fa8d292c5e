import type { LogFilter } from "@throughline/broker";
import type { Hub } from "../fanout/hub.ts";
import type { Hubs } from "../fanout/hubs.ts";
import type { Slots } from "../lifecycle/admission.ts";

/** A client, or a proxy on the way, gives a silent request up after 60 s or less. */
export const MAX_WAIT_MS = 30_000;

/**
 * Requests that wait for a log to go on. They wait on its hub, as a subscription does: however many wait,
 * the log is read for those only to whom something has come.
 */
export class LongPolls {
  readonly #hubs: Pick<Hubs, "acquire">;
  /** Each is a connection that is held open, and counts as one. */
  readonly #connections: Slots;
  #isLeaving = false;
  readonly #waiting: Set<() => void> = new Set();

  constructor(hubs: Pick<Hubs, "acquire">, connections: Slots) {
    this.#hubs = hubs;
    this.#connections = connections;
  }

  /**
   * The first page that is worth an answer, or what there is after `ms`, or when `gone` resolves.
   * Rejects with BrokerUnavailable.
   */
  async wait<P>(
    filter: LogFilter,
    read: () => Promise<P>,
    isWorth: (page: P) => boolean,
    { ms, gone }: { readonly ms: number; readonly gone: Promise<void> },
  ): Promise<P | "full"> {
    if (!this.#connections.tryTake()) return "full";
    try {
      return await this.#onHub(filter, async (hub) => {
        const until = performance.now() + ms;
        for (;;) {
          // Looked at before the page is read: what is stored meanwhile is in the page or moves the hub.
          const seen = hub?.published ?? 0;
          const page = await read();
          const left = until - performance.now();
          if (hub === undefined || isWorth(page) || left <= 0 || this.#isLeaving) return page;
          if (!(await this.#either(gone, (end) => hub.reach(seen + 1, left, end)))) return page;
        }
      });
    } finally {
      this.#connections.give();
    }
  }

  async #onHub<R>(filter: LogFilter, use: (hub: Hub | undefined) => Promise<R>): Promise<R> {
    const hub = await this.#hubs.acquire(filter);
    try {
      return await use(hub);
    } finally {
      hub?.release();
    }
  }

  /** This node is going: whoever waits is answered now, and asks another one. */
  leave(): void {
    this.#isLeaving = true;
    for (const release of this.#waiting) release();
  }

  async #either(
    gone: Promise<void>,
    wait: (end: Promise<void>) => Promise<boolean>,
  ): Promise<boolean> {
    let release: () => void = () => undefined;
    const left = new Promise<void>((resolve) => (release = resolve));
    this.#waiting.add(release);
    try {
      return await wait(Promise.race([gone, left]));
    } finally {
      this.#waiting.delete(release);
    }
  }
}
