import type { LogFilter } from "@throughline/broker";
import { Hub } from "./hub.ts";
import { findHubStart } from "./hub-start.ts";
import type { FanoutNode } from "./node.ts";

type Slot =
  | { readonly phase: "starting"; readonly hub: Promise<Hub | undefined> }
  | { readonly phase: "running"; readonly hub: Hub };

/** The hubs of a node, by filter. Each is begun by the first who asks, and lingers after the last. */
export class Hubs {
  readonly #node: FanoutNode;
  readonly #slots: Map<string, Slot> = new Map();
  #topics = 0;

  constructor(node: FanoutNode) {
    this.#node = node;
  }

  get size(): number {
    return this.#slots.size;
  }

  /**
   * The hub of a filter, held for the caller, who must `release` it. Undefined for a run of which nothing
   * is stored, as its leader says. Rejects with BrokerUnavailable.
   */
  async acquire(filter: LogFilter): Promise<Hub | undefined> {
    const key = keyOf(filter);
    let slot = this.#slots.get(key);
    if (slot === undefined) {
      slot = { phase: "starting", hub: this.#start(key, filter) };
      this.#slots.set(key, slot);
    }
    if (slot.phase === "running") {
      slot.hub.hold();
      return slot.hub;
    }
    const hub = await slot.hub;
    hub?.hold();
    return hub;
  }

  /** Closes hubs that nobody has needed for the linger time, and forgets unused pages. */
  sweep(now: number): void {
    for (const [key, slot] of this.#slots) {
      if (slot.phase === "starting") continue;
      if (slot.hub.isIdle(now)) {
        this.#slots.delete(key);
        slot.hub.close();
      } else slot.hub.sweep(now);
    }
  }

  close(): void {
    for (const slot of this.#slots.values()) if (slot.phase === "running") slot.hub.close();
    this.#slots.clear();
  }

  async #start(key: string, filter: LogFilter): Promise<Hub | undefined> {
    try {
      const start = await this.#node.reads.run(() => findHubStart(this.#node.log, filter));
      if (start === undefined) {
        this.#slots.delete(key);
        return undefined;
      }
      this.#topics += 1;
      const hub = new Hub(this.#node, filter, this.#topics, start, (error) => {
        this.#node.metrics.faults += 1;
        this.#node.report(error, filter);
        if (this.#isOf(key, hub)) this.#slots.delete(key);
        hub.fail(error);
      });
      this.#slots.set(key, { phase: "running", hub });
      hub.follow();
      return hub;
    } catch (error) {
      this.#slots.delete(key);
      throw error;
    }
  }

  #isOf(key: string, hub: Hub): boolean {
    const slot = this.#slots.get(key);
    return slot?.phase === "running" && slot.hub === hub;
  }
}

/** Ids are free of "/", so keys are unambiguous. */
function keyOf(filter: LogFilter): string {
  const session = `${filter.tenant}/${filter.session}`;
  return filter.kind === "run" ? `${session}/${filter.run}` : session;
}
