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

  /** The state as of everything that is stored now. */
  get state(): RunState {
    return this.#ledger.state;
  }

  append(event: NewEvent, cmd?: number): Promise<StoredAt> {
    return this.appendAll([event], cmd);
  }

  /**
   * With nothing between them. Not cut when the agent is stopped, and patient with a queue that the agent
   * has filled. `cmd`: COMMANDS sequence that they apply.
   */
  async appendAll(events: readonly NewEvent[], cmd?: number): Promise<StoredAt> {
    for (;;) {
      try {
        return await this.#writer.appendAll(events, cmd === undefined ? {} : { cmd });
      } catch (error) {
        if (!(error instanceof QueueFull)) throw error;
        await this.#writer.ready();
      }
    }
  }
}
