import type { LogFilter } from "@throughline/broker";
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
   * Resolves with whether something was stored behind `after`, in time. `gone` ends the waiting.
   * Rejects with BrokerUnavailable.
   */
  async wait(
    filter: LogFilter,
    after: number,
    ms: number,
    gone: Promise<void>,
  ): Promise<"more" | "nothing" | "full"> {
    if (this.#isLeaving) return "nothing";
    if (!this.#connections.tryTake()) return "full";
    try {
      const hub = await this.#hubs.acquire(filter);
      if (hub === undefined) return "nothing";
      try {
        if (hub.published > after) return "more";
        if (hub.isEnded) return "nothing";
        return (await this.#either(gone, (end) => hub.reach(after + 1, ms, end)))
          ? "more"
          : "nothing";
      } finally {
        hub.release();
      }
    } finally {
      this.#connections.give();
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
