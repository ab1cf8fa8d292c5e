/** One run in this worker's hands, from its claim to the end: the shell around lifecycle.ts. */
import {
  type Broker,
  FencedError,
  type RunClaim,
  type RunRef,
  type StoredCommand,
} from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { handled } from "./agent-lane.ts";
import type { Agent } from "./agent.ts";
import { Attempt } from "./attempt.ts";
import { inputAnswered, reactTo, stopsAgent, usedBefore } from "./command-effects.ts";
import { CommandPump } from "./command-pump.ts";
import { armTimer, endBegins } from "./deadline.ts";
import * as ending from "./ending.ts";
import { Execution } from "./execution.ts";
import { failureOf } from "./failure.ts";
import { isFinished } from "./finished-run.ts";
import type { InterruptRequest } from "./interruption.ts";
import {
  begun,
  fenced,
  holdsRun,
  interrupted,
  isLive,
  outcomeOf,
  type Phase,
  resumed,
  type RunOutcome,
  stopped,
} from "./lifecycle.ts";
import type { Log } from "./log.ts";
import { InputChecks } from "./requests/input-checks.ts";
import { storeAnswer } from "./requests/store-answer.ts";
import { seedRetry } from "./seeding.ts";
import { unless, within } from "./within.ts";

/** Attempts in a row that may end without having brought the run further (ARCHITECTURE §8). */
const MAX_IDLE_ATTEMPTS = 5;

/** An agent that heeds its signal settles in milliseconds. One that does not is left behind after this. */
const AGENT_STOP_MS = 2_000;
/** A run is handed back in a shutdown, which must not wait for a NATS that is away: once for its last events, once for the word. */
const HAND_BACK_MS = 2_500;
/** An agent that is executed again asks at once for what it waited for; if it has other things to do, its answer is not kept back by that. */
const ASKED_AGAIN_MS = 5_000;
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
  readonly #attempt: Attempt;
  readonly #pump: CommandPump;
  /** The attempt's first event is stored: whatever answers a command comes after it. */
  readonly #first: Promise<unknown>;
  /** Aborted when the run is not ours any more, or can't be written to. */
  readonly #gone: AbortController = new AbortController();
  /** Aborted when the run is to be handed to another worker. */
  readonly #handing: AbortController = new AbortController();
  readonly #checks: InputChecks = new InputChecks();
  /** Aborted when the phase has changed to one without an agent: nobody asks again. */
  #unasked: AbortController = new AbortController();
  #phase: Phase = { kind: "claimed" };
  /** Called when the phase has changed. */
  #changed: () => void = () => undefined;
  /** The last one. */
  #execution: Execution | undefined;
  #draining = false;

  constructor(options: RunHostOptions) {
    const { broker, claim } = options;
    this.#options = options;
    this.ref = claim.ref;
    this.epoch = claim.epoch;
    const attempt = new Attempt(options);
    this.#attempt = attempt;
    for (const signal of [attempt.writer.signal, claim.signal]) {
      if (signal.aborted) this.#lost(signal.reason);
      signal.addEventListener("abort", () => this.#lost(signal.reason), { once: true });
    }
    const paused = attempt.state.status === "interrupted";
    // In one: a command that waits for the first event must not find the run claimed only.
    this.#first = handled(attempt.begin().then(() => this.#enter(begun(this.#phase, paused))));
    this.#pump = new CommandPump({
      broker,
      ref: claim.ref,
      after: attempt.applied,
      ready: (command) => this.#ready(command),
      presses: stopsAgent,
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
    this.#draining = true;
    if (this.#phase.kind === "paused") this.handBack();
    else this.#execution?.gate.drain();
  }

  /** Hands the run to another worker now. */
  handBack(): void {
    this.#stop({ kind: "handback", why: "shutdown" });
    this.#handing.abort();
  }

  /** To be called about every second. `now` on the performance clock. */
  tick(now: number): void {
    const live = this.#phase.kind === "running" || this.#phase.kind === "paused";
    if (live && this.#attempt.snapshots.isDue(now)) void this.#snapshot();
  }

  async #host(): Promise<RunOutcome> {
    const { claim, log } = this.#options;
    const { ts, payload } = claim.queued;
    const deadline = armTimer(endBegins(ts, payload.deadline), () =>
      this.#stop(ending.failed("deadline", "the run was not finished by its deadline", "deadline")),
    );
    try {
      await this.#begin();
      for (let phase = this.#phase; isLive(phase); phase = this.#phase) {
        if (phase.kind === "running") await this.#execute(phase);
        else await this.#left(phase);
      }
      await this.#finish();
    } catch (error) {
      await this.#leave(error);
    } finally {
      deadline.disarm();
      this.#execution?.stop("ended");
      this.#attempt.writer.discard();
      // A command in hand may wait for a NATS that is away: for what it is told nobody waits any more.
      await within(HAND_BACK_MS, this.#pump.stop());
      log.debug({ phase: this.#phase }, "the run has left this worker");
    }
    return outcomeOf(this.#phase);
  }

  /** The attempt's first event is the fence; commands that are stored already come before the agent. */
  async #begin(): Promise<void> {
    const before = this.#attempt.state;
    // NATS may be away, and the worker shutting down: what is not begun can be handed back at any time.
    const signal = AbortSignal.any([this.#gone.signal, this.#handing.signal]);
    // The first turn: no command is judged by a run that has a part of its copies.
    const seeded = handled(this.#pump.between(() => this.#seed(signal)));
    try {
      await unless(signal, this.#first);
      if (this.#draining && this.#phase.kind === "paused") this.handBack();
      // A run that waits for somebody may wait through any number of restarts.
      if (before.status === "running" && before.idle_attempts >= MAX_IDLE_ATTEMPTS) {
        const text = `${before.idle_attempts} attempts in a row ended without getting further`;
        this.#stop(ending.failed("too_many_attempts", text));
      }
      await unless(signal, seeded);
      if (isLive(this.#phase)) await unless(signal, this.#pump.drainToHold(signal));
    } catch (error) {
      if (!this.#handing.signal.aborted || this.#gone.signal.aborted) throw error;
    }
  }

  async #seed(signal: AbortSignal): Promise<void> {
    const { broker, log } = this.#options;
    await this.#first;
    if (!isLive(this.#phase)) return;
    await seedRetry({ broker, ref: this.ref, runLog: this.#attempt.runLog, log }, signal);
  }

  async #execute(phase: Phase & { readonly kind: "running" }): Promise<void> {
    const { agent, broker, claim, log } = this.#options;
    const execution = new Execution({
      broker,
      agent,
      ref: this.ref,
      attempt: this.#attempt.number,
      execution: phase.execution,
      queuedAt: claim.streamSeq,
      state: this.#attempt.state,
      writer: this.#attempt.writer,
      checks: this.#checks,
      ledger: this.#attempt.ledger,
      log,
      draining: this.#draining,
      drainCommands: () => this.#pump.drain(this.#gone.signal),
      between: (decide) => this.#pump.between(decide),
      onBoundary: () => this.handBack(),
      onOverflow: (error) =>
        this.#stop({ kind: "failed", failure: failureOf(error), by: "worker" }),
    });
    this.#execution = execution;
    // How an agent ends that was interrupted meanwhile is nobody's concern.
    void execution.end.then((how) => this.#phase === phase && this.#stop(how));
    await this.#left(phase);
    // The agent may let go of what it holds before the run ends, or before it is executed again.
    if (!(await within(AGENT_STOP_MS, execution.end))) {
      log.warn(
        { grace_ms: AGENT_STOP_MS },
        "the agent ignores its signal: the run goes on without it",
      );
    }
  }

  /** Resolves when the run is in another phase. Rejects when it was lost: then nothing is waited for. */
  async #left(phase: Phase): Promise<void> {
    if (this.#phase === phase && !this.#gone.signal.aborted) {
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
    this.#gone.signal.throwIfAborted();
  }

  #enter(phase: Phase): void {
    if (phase === this.#phase) return;
    this.#phase = phase;
    if (phase.kind !== "running") this.#unasked.abort();
    this.#changed();
  }

  /** Takes effect once; what was decided first stands, but for a cancellation that overrides an outcome. */
  #stop(how: ending.Ending): void {
    const phase = stopped(this.#phase, how);
    if (phase === this.#phase) return;
    this.#execution?.stop(ending.stopReason(how));
    this.#enter(phase);
  }

  async #finish(): Promise<void> {
    if (this.#phase.kind !== "finishing") return;
    const { ending: outcome } = this.#phase;
    if (outcome.kind === "handback") return this.#giveBack(outcome.why);
    const signal = AbortSignal.any([this.#gone.signal, this.#handing.signal]);
    try {
      await unless(signal, this.#attempt.writer.closeText());
      const kept = await unless(signal, this.#attempt.prepareEnd(outcome, signal));
      // An accepted cancellation is never overridden by an outcome that was not written yet: so nothing that
      // takes its time lies between here and the end.
      if (this.#phase.ending.kind !== "cancelled") await unless(signal, this.#pump.drain(signal));
      await unless(signal, this.#pump.stop());
      const { ending: now } = this.#phase;
      if (now.kind !== "handback") await this.#end(now === outcome ? kept : now);
    } catch (error) {
      if (!this.#handing.signal.aborted || this.#gone.signal.aborted) throw error;
      // NATS is away, and the worker must go: the next one ends the run, or finds that it has ended.
      return this.#giveBack("shutdown");
    }
  }

  async #end(how: ending.Final): Promise<void> {
    const { claim, log } = this.#options;
    this.#enter({ kind: "finishing", ending: how, sealed: true });
    const state = await this.#confirmed(this.#attempt.end(how));
    if (isFinished(state)) this.#enter({ kind: "ended", terminal: `run.${state.status}` });
    log.info({ terminal: state.status, seq: state.seq }, "the run has ended");
    await this.#snapshot();
    await this.#attempt.listed();
    await claim.ack();
  }

  /** Rejects when the worker must go and NATS has not confirmed it a little later. */
  async #confirmed<T>(end: Promise<T>): Promise<T> {
    const { signal } = this.#handing;
    try {
      return await unless(signal, end);
    } catch (error) {
      if (!signal.aborted || !(await within(HAND_BACK_MS, end))) throw error;
      return end;
    }
  }

  async #giveBack(why: string): Promise<void> {
    const { claim, log } = this.#options;
    const settle = async (): Promise<void> => {
      await this.#pump.stop();
      await this.#attempt.writer.flush();
      await this.#snapshot();
    };
    if (!(await within(HAND_BACK_MS, settle()))) {
      log.warn({ grace_ms: HAND_BACK_MS }, "NATS did not confirm the run's last events in time");
    }
    if (!holdsRun(this.#phase)) return;
    this.#attempt.writer.discard();
    this.#enter({ kind: "handed back", why });
    log.info({ why }, "the run is handed back");
    // Where NATS does not hear it, the run goes on elsewhere after its lease.
    await within(HAND_BACK_MS, claim.handBack());
  }

  /** Another attempt has the run, or the log does not take our events. */
  #lost(reason: unknown): void {
    if (this.#gone.signal.aborted) return;
    this.#gone.abort(reason);
    if (reason instanceof FencedError && holdsRun(this.#phase)) {
      this.#enter(fenced(this.#phase));
      this.#attempt.writer.discard();
      // At once, and nothing else is said: the token may act on its new owner's delivery by now.
      this.#options.claim.abandon();
      this.#options.log.info({ err: reason }, "another worker has the run");
    }
    this.#execution?.stop("lost", reason);
    this.#changed();
  }

  async #leave(error: unknown): Promise<void> {
    const { claim, log } = this.#options;
    if (!holdsRun(this.#phase)) return;
    log.error({ err: error }, "the run cannot be hosted here");
    this.#execution?.stop("lost", error);
    this.#attempt.writer.discard();
    await new Promise((resolve) => setTimeout(resolve, MISHAP_MS));
    this.#enter({ kind: "handed back", why: "a fault of this worker" });
    await claim.handBack();
  }

  /** An answer to an input waits for the agent that can check it, if that may ask again. */
  #ready(command: StoredCommand): Promise<void> | undefined {
    const { status, inputs } = this.#attempt.state;
    if (this.#phase.kind !== "claimed" && this.#phase.kind !== "running") return undefined;
    if (status === "interrupted") return undefined;
    const open = inputs.filter((input) => input.status === "open");
    if (open.every(({ input_id }) => this.#checks.has(input_id))) return undefined;
    const id = inputAnswered(command);
    if (id === undefined || this.#checks.has(id)) return undefined;
    if (open.every(({ input_id }) => input_id !== id)) return undefined;
    this.#unasked = new AbortController();
    const late = AbortSignal.timeout(ASKED_AGAIN_MS);
    return this.#checks.until(id, AbortSignal.any([this.#unasked.signal, late]));
  }

  async #apply(command: StoredCommand): Promise<"next" | "stop"> {
    await this.#first;
    // What is stored can be seen, and answered, before we are told that it is: an answer must not be
    // judged by a state without its question.
    await this.#attempt.writer.flush();
    const { ending: how } = this.#phase.kind === "finishing" ? this.#phase : {};
    // The next worker finds it in the command log.
    if (how?.kind === "handback") return "stop";
    const { log, worker } = this.#options;
    const execution = this.#execution;
    const reaction = reactTo(command, this.#attempt.state, {
      contradicts: await this.#contradicts(command),
      attempt: this.#attempt.number,
      worker,
      over: how !== undefined,
      inboxAwaited: execution?.inboxAwaited ?? false,
      checkInput: (inputId, content) => this.#checks.problem(inputId, content),
      now: Date.now(),
    });
    switch (reaction.kind) {
      case "skip":
        log.debug({ command: command.streamSeq, why: reaction.why }, "a command is passed over");
        return "next";
      case "answer":
        await this.#answer(reaction.events, command);
        return "next";
      case "resume":
        if (await this.#answer(reaction.events, command)) this.#enter(resumed(this.#phase));
        return "next";
      case "interrupt":
        await this.#interrupt(reaction.request);
        return "next";
      case "cancel":
        this.#stop({ kind: "cancelled", command: reaction.command });
        return "stop";
    }
  }

  /** Whether the command's id was used before, with another content. */
  async #contradicts(command: StoredCommand): Promise<boolean> {
    const id = usedBefore(command, this.#attempt.state);
    if (id === undefined) return false;
    const { commands } = this.#options.broker;
    const first = await commands.find({ ref: this.ref, user: command.user, id }, command.streamSeq);
    return first !== undefined && first.hash !== command.hash;
  }

  /** False when the command was refused instead, for its size. */
  #answer(events: readonly NewEvent[], { streamSeq }: StoredCommand): Promise<boolean> {
    const by = { ...this.#options, ref: this.ref, signal: this.#gone.signal };
    return storeAnswer(this.#attempt.runLog, by, events, streamSeq);
  }

  async #interrupt(request: InterruptRequest): Promise<void> {
    this.#execution?.stop("interrupted");
    this.#enter(interrupted(this.#phase));
    await this.#attempt.interrupt(request);
    this.#options.log.info({ reason: request.reason }, "the run was interrupted");
    if (this.#draining) this.handBack();
  }

  #commandFault(error: unknown): void {
    if (!holdsRun(this.#phase) || this.#gone.signal.aborted) return;
    this.#options.log.error({ err: error }, "the run's commands cannot be read");
    this.#stop({ kind: "handback", why: "its commands could not be read" });
  }

  async #snapshot(): Promise<void> {
    if ((await this.#attempt.snapshots.take()) !== "fenced") return;
    this.#lost(new FencedError(`a newer attempt of ${this.ref.run} has written a snapshot`));
  }
}
