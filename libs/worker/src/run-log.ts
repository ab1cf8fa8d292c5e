/** The worker's own view of a run's log: what it appends besides the agent, and what is stored. */
import { QueueFull, type RunWriter, type StoredAt } from "@throughline/broker";
import type { NewEvent, RunState } from "@throughline/protocol";
import type { Ledger } from "./ledger.ts";

export class RunLog {
  readonly #writer: RunWriter;
  readonly #ledger: Ledger;

  constructor(writer: RunWriter, ledger: Ledger) {
    this.#writer = writer;
    this.#ledger = ledger;
  }

  /** The state as of the last look. */
  get known(): RunState {
    return this.#ledger.state;
  }

  /** The state as of everything that is stored now. Waits while NATS is away, until `signal` aborts. */
  stored(signal: AbortSignal): Promise<RunState> {
    return this.#ledger.catchUp(this.#writer.stored.streamSeq, signal);
  }

  /** Not cut when the agent is stopped, and patient with a queue that the agent has filled. */
  async append(event: NewEvent, cmd?: number): Promise<StoredAt> {
    for (;;) {
      try {
        return await this.#writer.append(event, cmd === undefined ? {} : { cmd });
      } catch (error) {
        if (!(error instanceof QueueFull)) throw error;
        await this.#writer.ready();
      }
    }
  }

  async appendAll(events: readonly NewEvent[]): Promise<void> {
    await Promise.all(events.map((event) => this.append(event)));
  }
}
