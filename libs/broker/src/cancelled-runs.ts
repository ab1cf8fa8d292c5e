import type { AgentDirectory } from "./agent-directory.ts";
import { CancelNotices } from "./cancel-notices.ts";
import { LogCorrupt } from "./errors.ts";
import type { LogMessage } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { OwnerCheck } from "./owner-check.ts";
import { parseQueued } from "./recover.ts";
import { readStanding } from "./standing.ts";
import { type EndingSweep, endRun } from "./swept-end.ts";

export interface CancelledRunsOptions {
  readonly agents: Pick<AgentDirectory, "offered">;
  /** How long after the cancellation a worker may still take the run up, in ms. */
  readonly takeUpMs: number;
}

const RETRY_MS = 2_000;

/** Ends runs that were cancelled and that no worker has or will have: their commands wait for nobody. */
export class CancelledRuns {
  readonly #by: EndingSweep;
  readonly #agents: Pick<AgentDirectory, "offered">;
  readonly #owners: OwnerCheck;
  readonly #notices: CancelNotices;

  constructor(by: EndingSweep, options: CancelledRunsOptions) {
    this.#by = by;
    this.#agents = options.agents;
    this.#owners = new OwnerCheck(by.broker);
    this.#notices = new CancelNotices(by.broker.nc, {
      waitMs: options.takeUpMs,
      look: (ref) => this.#look(ref),
    });
  }

  /** Resolves when the runs that are being looked at have been. */
  async close(): Promise<void> {
    await this.#notices.close();
    this.#owners.close();
  }

  async #look(ref: RunRef): Promise<void> {
    try {
      const standing = await readStanding(this.#by.broker, ref);
      const { job, last } = standing;
      if (!job || last?.end || (last && last.epoch !== job.epoch)) return;
      const { agent } = parseQueued(job.body, `the job of ${ref.run}`).payload;
      if (last && (await this.#isCarried(ref, agent, last))) return;
      await endRun(this.#by, { ref, streamSeq: job.streamSeq, epoch: job.epoch }, standing);
    } catch (error) {
      this.#by.warn(`${ref.run} was cancelled and could not be looked at`, error);
      // What is corrupt stays so, and its deadline ends it.
      if (!(error instanceof LogCorrupt)) this.#notices.add(ref, RETRY_MS);
    }
  }

  /** A run that was begun has a worker or gets one: its owner if that lives, else one that offers its agent. */
  async #isCarried(ref: RunRef, agent: string, last: LogMessage): Promise<boolean> {
    if (await this.#agents.offered(agent)) return true;
    const question = { ...ref, epoch: last.epoch, agent };
    return last.worker !== "" && (await this.#owners.ask(last.worker, question)) === "holds";
  }
}
