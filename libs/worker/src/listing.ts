/** This run's line in the list of the session's runs: a help to find it, which holds nothing up. */
import { type Broker, type RunEntry, type RunRef } from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import type { Log } from "./log.ts";
import { within } from "./within.ts";

/** The list is behind rather than the run late. */
const PATIENCE_MS = 2_000;

/** Pure. */
export function entryOf(ref: RunRef, state: RunState): RunEntry {
  const { ended_at, retry_of } = state;
  return {
    tenant: ref.tenant,
    session: ref.session,
    run: ref.run,
    agent: state.agent ?? "",
    status: state.status,
    by: state.by ?? "",
    queued_at: state.queued_at ?? 0,
    ...(ended_at === undefined ? {} : { ended_at }),
    ...(retry_of === undefined ? {} : { retry_of }),
  };
}

export class Listing {
  readonly #broker: Pick<Broker, "runs">;
  readonly #log: Log;
  #putting: Promise<unknown> = Promise.resolve();

  constructor(broker: Pick<Broker, "runs">, log: Log) {
    this.#broker = broker;
    this.#log = log;
  }

  put(entry: RunEntry): void {
    const put = async (): Promise<void> => {
      try {
        await this.#broker.runs.put(entry);
      } catch (error) {
        this.#log.warn({ err: error, status: entry.status }, "the run was not listed");
      }
    };
    this.#putting = this.#putting.then(put);
  }

  /** Resolves when all is put, or has taken too long. */
  async settled(): Promise<void> {
    await within(PATIENCE_MS, this.#putting);
  }
}
