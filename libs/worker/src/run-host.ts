/** One run in this worker's hands, from its claim to the end: the shell around lifecycle.ts. */
import {
  type Broker,
  EventTooLarge,
  FencedError,
  openRunWriter,
  type RunClaim,
  type RunRef,
  type RunWriter,
  type StoredCommand,
} from "@throughline/broker";
import { initialRunState, isTerminal, reduce, type RunState } from "@throughline/protocol";
import { AgentLane, handled } from "./agent-lane.ts";
import type { Agent } from "./agent.ts";
import { runAgent } from "./agent-run.ts";
import { reactTo } from "./command-effects.ts";
import { CommandPump } from "./command-pump.ts";
import { armTimer, endBegins } from "./deadline.ts";
import { doneOperations } from "./done-operations.ts";
import { DrainGate } from "./drain-gate.ts";
import * as ending from "./ending.ts";
import { failureOf, RunStopped, type StopReason } from "./failure.ts";
import { Ledger } from "./ledger.ts";
import { fenced, holdsRun, outcomeOf, type Phase, type RunOutcome, stopped } from "./lifecycle.ts";
import type { Log } from "./log.ts";
import { RunLog } from "./run-log.ts";
import { Snapshots } from "./snapshots.ts";
import { within } from "./within.ts";

/** Attempts in a row that may end without having brought the run further (ARCHITECTURE §8). */
const MAX_IDLE_ATTEMPTS = 5;

/** An agent that heeds its signal settles in milliseconds. One that does not is left behind after this. */
const AGENT_STOP_MS = 2_000;
/** A run is handed back in a shutdown, which must not wait for a NATS that is away: once for its last events, once for the word. */
const HAND_BACK_MS = 2_500;
/** A run that could not be hosted comes back at once: not in a tight loop. */
const MISHAP_MS = 1_000;

export interface RunHostOptions {
  readonly broker: Broker;
  readonly claim: RunClaim;
  readonly agent: Agent;
  /** Id of this worker process. */
  readonly worker: string;
  readonly log: Log;
}

export class RunHost {
  readonly ref: RunRef;
  readonly epoch: string;
  /** Resolves when the run has left this worker's hands. Never rejects. */
  readonly done: Promise<RunOutcome>;
  readonly #options: RunHostOptions;
  readonly #attempt: number;
  readonly #writer: RunWriter;
  readonly #log: RunLog;
  readonly #lane: AgentLane;
  readonly #gate: DrainGate;
  readonly #snapshots: Snapshots;
  readonly #pump: CommandPump;
  /** Told to the agent. */
  readonly #abort: AbortController = new AbortController();
  /** Aborted when the run is not ours any more, or can't be written to. */
  readonly #gone: AbortController = new AbortController();
  readonly #stopping: Promise<void>;
  #phase: Phase = { kind: "claimed" };

  constructor(options: RunHostOptions) {
    const { broker, claim, worker, log } = options;
    const { ref, epoch } = claim;
    const position = claim.log?.position ?? { seq: 1, streamSeq: claim.streamSeq, eSeq: 0, cmd: 0 };
    this.#options = options;
    this.ref = ref;
    this.epoch = epoch;
    this.#attempt = (claim.log?.attempt ?? 0) + 1;
    const attempt = this.#attempt;
    const writer = openRunWriter(broker, { ref, epoch, attempt, worker, position });
    const ledger = new Ledger({
      broker,
      ref,
      state: claim.log?.state ?? reduce(initialRunState(ref.run), claim.queued),
      streamSeq: position.streamSeq,
    });
    this.#writer = writer;
    this.#log = new RunLog(writer, ledger);
    this.#lane = new AgentLane({
      writer,
      session: ref.session,
      run: ref.run,
      onOverflow: (error) =>
        this.#stop({ kind: "failed", failure: failureOf(error), by: "worker" }),
    });
    this.#gate = new DrainGate(() => this.handBack());
    this.#snapshots = new Snapshots(
      { broker, ref, epoch, attempt, writer, ledger, log },
      performance.now(),
    );
    this.#stopping = new Promise((resolve) => {
      this.#abort.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    for (const signal of [writer.signal, claim.signal]) {
      if (signal.aborted) this.#lost(signal.reason);
      signal.addEventListener("abort", () => this.#lost(signal.reason), { once: true });
    }
    this.#pump = new CommandPump({
      broker,
      ref,
      after: position.cmd,
      apply: (command) => this.#apply(command),
      onFault: (error) => this.#commandFault(error),
    });
    this.done = this.#host();
  }

  /** Does this worker still write to the run? Asked by other workers to whom it was delivered. */
  get holds(): boolean {
    return holdsRun(this.#phase);
  }

  /** Hands the run to another worker as soon as no step is cut short by it. */
  drain(): void {
    this.#gate.drain();
  }

  /** Hands the run to another worker now. */
  handBack(): void {
    this.#stop({ kind: "handback", why: "shutdown" });
  }

  /** To be called about every second. `now` on the performance clock. */
  tick(now: number): void {
    if (this.#phase.kind === "running" && this.#snapshots.isDue(now)) void this.#snapshot();
  }

  async #host(): Promise<RunOutcome> {
    const { claim, log } = this.#options;
    const { ts, payload } = claim.queued;
    const deadline = armTimer(endBegins(ts, payload.deadline), () =>
      this.#stop(ending.failed("deadline", "the run was not finished by its deadline", "deadline")),
    );
    try {
      await this.#begin();
      if (this.#phase.kind === "running") await this.#runAgent();
      await this.#finish();
    } catch (error) {
      await this.#leave(error);
    } finally {
      deadline.disarm();
      this.#cut("ended");
      this.#writer.discard();
      await this.#pump.stop();
      log.debug({ phase: this.#phase }, "the run has left this worker");
    }
    return outcomeOf(this.#phase);
  }

  /** The attempt's first event is the fence; commands that are stored already come before the agent. */
  async #begin(): Promise<void> {
    const { claim } = this.#options;
    if (claim.log) await this.#takeOver(claim.log.state);
    await this.#pump.drain(this.#gone.signal);
    if (this.#phase.kind !== "claimed") return;
    if (!claim.log) {
      const payload = { attempt: this.#attempt, worker: this.#options.worker };
      await this.#log.append({ type: "run.started", payload });
    }
    if (this.#phase.kind === "claimed") this.#phase = { kind: "running" };
  }

  async #takeOver(before: RunState): Promise<void> {
    const payload = { attempt: this.#attempt, worker: this.#options.worker };
    await this.#log.appendAll([
      { type: "run.resumed", payload },
      ...ending.supersedeOpenSteps(before),
    ]);
    if (before.idle_attempts >= MAX_IDLE_ATTEMPTS) {
      const text = `${before.idle_attempts} attempts in a row ended without getting further`;
      this.#stop(ending.failed("too_many_attempts", text));
    }
  }

  async #runAgent(): Promise<void> {
    const { agent, claim, log } = this.#options;
    // Of a new run the claim says all there is: no read stands between its start and its agent.
    const state = claim.log ? await this.#log.stored(this.#gone.signal) : this.#log.known;
    const agentEnd = runAgent({
      agent,
      state,
      run: this.ref.run,
      session: this.ref.session,
      attempt: this.#attempt,
      done: doneOperations(state),
      lane: this.#lane,
      gate: this.#gate,
      signal: this.#abort.signal,
      writer: this.#writer,
      log,
    });
    void agentEnd.then((how) => this.#stop(how));
    await this.#stopping;
    // Fenced: nothing is waited for. Else the agent may let go of what it holds before the run ends.
    this.#gone.signal.throwIfAborted();
    if (!(await within(AGENT_STOP_MS, agentEnd))) {
      log.warn(
        { grace_ms: AGENT_STOP_MS },
        "the agent ignores its signal: the run goes on without it",
      );
    }
  }

  /** Takes effect once; what was decided first stands, but for a cancellation that overrides an outcome. */
  #stop(how: ending.Ending): void {
    const phase = stopped(this.#phase, how);
    if (phase === this.#phase) return;
    this.#phase = phase;
    this.#cut(ending.stopReason(how));
  }

  /** From here on the agent writes nothing more, whether it heeds its signal or not. */
  #cut(reason: StopReason, cause?: unknown): void {
    const stop = new RunStopped(reason, cause);
    this.#lane.stop(stop);
    if (!this.#abort.signal.aborted) this.#abort.abort(stop);
  }

  async #finish(): Promise<void> {
    if (this.#phase.kind !== "finishing") return;
    if (this.#phase.ending.kind === "handback") return this.#giveBack(this.#phase.ending.why);
    await this.#writer.flush();
    // An accepted cancellation is never overridden by an outcome that was not written yet.
    if (this.#phase.ending.kind !== "cancelled") await this.#pump.drain(this.#gone.signal);
    await this.#pump.stop();
    const state = await this.#log.stored(this.#gone.signal);
    await this.#end(state, this.#phase.ending);
  }

  async #end(state: RunState, how: Exclude<ending.Ending, { kind: "handback" }>): Promise<void> {
    const { claim, log } = this.#options;
    this.#phase = { kind: "finishing", ending: how, sealed: true };
    for (const event of ending.closeOpen(state, how)) void handled(this.#log.append(event));
    const terminal = ending.terminalEvent(state, how);
    try {
      await this.#log.append(
        terminal,
        how.kind === "cancelled" ? how.command.streamSeq : undefined,
      );
    } catch (error) {
      if (!(error instanceof EventTooLarge) || how.kind !== "completed") throw error;
      const failure = { code: "output_too_large", message: error.message, retryable: false };
      return this.#end(state, { kind: "failed", failure, by: "worker" });
    }
    if (isTerminal(terminal.type)) this.#phase = { kind: "ended", terminal: terminal.type };
    log.info({ terminal: terminal.type, seq: this.#writer.seq }, "the run has ended");
    await this.#snapshot();
    await claim.ack();
  }

  async #giveBack(why: string): Promise<void> {
    const { claim, log } = this.#options;
    const settle = async (): Promise<void> => {
      await this.#pump.stop();
      await this.#writer.flush();
      await this.#snapshot();
    };
    if (!(await within(HAND_BACK_MS, settle()))) {
      log.warn({ grace_ms: HAND_BACK_MS }, "NATS did not confirm the run's last events in time");
    }
    if (!holdsRun(this.#phase)) return;
    this.#writer.discard();
    this.#phase = { kind: "handed back", why };
    log.info({ why }, "the run is handed back");
    // Where NATS does not hear it, the run goes on elsewhere after its lease.
    await within(HAND_BACK_MS, claim.handBack());
  }

  /** Another attempt has the run, or the log does not take our events. */
  #lost(reason: unknown): void {
    if (this.#gone.signal.aborted) return;
    this.#gone.abort(reason);
    if (reason instanceof FencedError && holdsRun(this.#phase)) {
      this.#phase = fenced(this.#phase);
      this.#writer.discard();
      // At once, and nothing else is said: the token may act on its new owner's delivery by now.
      this.#options.claim.abandon();
      this.#options.log.info({ err: reason }, "another worker has the run");
    }
    this.#cut("lost", reason);
  }

  async #leave(error: unknown): Promise<void> {
    const { claim, log } = this.#options;
    if (!holdsRun(this.#phase)) return;
    log.error({ err: error }, "the run cannot be hosted here");
    this.#cut("lost", error);
    this.#writer.discard();
    await new Promise((resolve) => setTimeout(resolve, MISHAP_MS));
    this.#phase = { kind: "handed back", why: "a fault of this worker" };
    await claim.handBack();
  }

  async #apply(command: StoredCommand): Promise<"next" | "stop"> {
    const reaction = reactTo(command, await this.#log.stored(this.#gone.signal));
    switch (reaction.kind) {
      case "skip":
        this.#options.log.debug(
          { command: command.streamSeq, why: reaction.why },
          "a command is passed over",
        );
        return "next";
      case "answer":
        await this.#log.append(reaction.event, command.streamSeq);
        return "next";
      case "cancel":
        this.#stop({ kind: "cancelled", command: reaction.command });
        return "stop";
    }
  }

  #commandFault(error: unknown): void {
    if (!holdsRun(this.#phase) || this.#gone.signal.aborted) return;
    this.#options.log.error({ err: error }, "the run's commands cannot be read");
    this.#stop({ kind: "handback", why: "its commands could not be read" });
  }

  async #snapshot(): Promise<void> {
    if ((await this.#snapshots.take(this.#gone.signal)) !== "fenced") return;
    this.#lost(new FencedError(`a newer attempt of ${this.ref.run} has written a snapshot`));
  }
}
