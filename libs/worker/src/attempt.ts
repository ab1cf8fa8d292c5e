/** One worker's attempt at a run: its way to the log, and what it keeps beside it. */
import {
  type Broker,
  EventTooLarge,
  openRunWriter,
  type RunClaim,
  type RunRef,
  type RunWriter,
  ValueTooLarge,
} from "@throughline/broker";
import { initialRunState, type NewEvent, reduce, type RunState } from "@throughline/protocol";
import * as ending from "./ending.ts";
import { type InterruptRequest, interruptEvents } from "./interruption.ts";
import { Ledger } from "./ledger.ts";
import { entryOf, Listing } from "./listing.ts";
import type { Log } from "./log.ts";
import { keptResult } from "./requests/kept.ts";
import { RunLog } from "./run-log.ts";
import { Snapshots } from "./snapshots.ts";

export interface AttemptOptions {
  readonly broker: Broker;
  readonly claim: RunClaim;
  /** Id of this worker process. */
  readonly worker: string;
  readonly log: Log;
}

export class Attempt {
  readonly ref: RunRef;
  /** 1 for the first. */
  readonly number: number;
  /** COMMANDS sequence that earlier attempts have applied. */
  readonly applied: number;
  readonly writer: RunWriter;
  readonly ledger: Ledger;
  readonly runLog: RunLog;
  readonly snapshots: Snapshots;
  readonly #options: AttemptOptions;
  readonly #listing: Listing;

  constructor(options: AttemptOptions) {
    const { broker, claim, worker, log } = options;
    const { ref, epoch } = claim;
    const position = claim.log?.position ?? { seq: 1, streamSeq: claim.streamSeq, eSeq: 0, cmd: 0 };
    const attempt = (claim.log?.attempt ?? 0) + 1;
    const ledger = new Ledger(
      claim.log?.state ?? reduce(initialRunState(ref.run), claim.queued),
      position.streamSeq,
    );
    const writer = openRunWriter(broker, {
      ref,
      epoch,
      attempt,
      worker,
      position,
      onStored: (events, at) => ledger.absorb(events, at),
    });
    this.#options = options;
    this.ref = ref;
    this.number = attempt;
    this.applied = position.cmd;
    this.writer = writer;
    this.ledger = ledger;
    this.runLog = new RunLog(writer, ledger);
    this.snapshots = new Snapshots(
      { broker, ref, epoch, attempt, writer, ledger, log },
      performance.now(),
    );
    this.#listing = new Listing(broker, log);
  }

  /** As of everything that is stored. */
  get state(): RunState {
    return this.ledger.state;
  }

  /** The first of them is the fence. */
  async begin(): Promise<void> {
    const { claim, worker } = this.#options;
    const payload = { attempt: this.number, worker };
    const events: NewEvent[] = claim.log
      ? [{ type: "run.resumed", payload }, ...ending.supersedeOpenSteps(claim.log.state)]
      : [{ type: "run.started", payload }];
    await this.runLog.appendAll(events);
    this.#listing.put(entryOf(this.ref, this.state));
  }

  /** The agent was stopped: what it wrote until now is stored first, then what it had open is closed. */
  async interrupt(request: InterruptRequest): Promise<void> {
    await this.writer.closeText();
    await this.runLog.appendAll(interruptEvents(this.state, request), request.streamSeq);
  }

  /**
   * Does what takes its time before the end can be written: commands that come meanwhile still count. Gives
   * the end as it will be stored.
   */
  async prepareEnd(how: ending.Final, signal: AbortSignal): Promise<ending.Final> {
    // Whoever sees the end may start the session's next run, which looks for this one in the list.
    await this.#listing.settled();
    if (how.kind !== "completed") return how;
    try {
      const output = await keptResult({ ...this.#options, ref: this.ref, signal }, how.output);
      return { ...how, output };
    } catch (error) {
      if (!(error instanceof ValueTooLarge)) throw error;
      return ending.failed("output_too_large", error.message);
    }
  }

  /** Writes the terminal event, and closes before it what is open. Gives the state at the end. */
  async end(how: ending.Final): Promise<RunState> {
    try {
      await this.runLog.appendAll(
        [...ending.closeOpen(this.state, how), ending.terminalEvent(this.state, how)],
        how.kind === "cancelled" ? how.command.streamSeq : undefined,
      );
    } catch (error) {
      if (!(error instanceof EventTooLarge) || how.kind !== "completed") throw error;
      return this.end(ending.failed("output_too_large", error.message));
    }
    this.#listing.put(entryOf(this.ref, this.state));
    return this.state;
  }

  /** Resolves when the list has the run's end, or has taken too long. */
  listed(): Promise<void> {
    return this.#listing.settled();
  }
}
