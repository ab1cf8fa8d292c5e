/**
 * One execution of an agent's `run`. An attempt has one after the other: an interrupt ends one, and what
 * resumes the run begins the next. Each has its own way to the log, so an old one can write nothing.
 */
import { AppState } from "./app-state.ts";
import { setMaxListeners } from "node:events";
import {
  type Broker,
  type NewEphemeral,
  resolve,
  type RunRef,
  type RunWriter,
} from "@throughline/broker";
import type { ApprovalState, InputState, RunState } from "@throughline/protocol";
import { Activity, isOpen } from "./activity.ts";
import { AgentLane, handled } from "./agent-lane.ts";
import type { Agent, Tool } from "./agent.ts";
import { runAgent } from "./agent-run.ts";
import { type DoneOperations, doneOperations } from "./done-operations.ts";
import { DrainGate } from "./drain-gate.ts";
import type { Ending } from "./ending.ts";
import { type AgentError, RunStopped, type StopReason } from "./failure.ts";
import { patiently } from "./finished-run.ts";
import { TakenItems } from "./inbox.ts";
import type { Ledger } from "./ledger.ts";
import type { Log } from "./log.ts";
import type { InputChecks } from "./requests/input-checks.ts";
import { keptResult } from "./requests/kept.ts";
import { Underway } from "./requests/underway.ts";
import type { ScopeRun, Wait } from "./scope-run.ts";

export interface ExecutionOptions {
  readonly broker: Broker;
  readonly agent: Agent;
  readonly ref: RunRef;
  readonly attempt: number;
  readonly execution: number;
  /** Stream sequence of `run.queued`. */
  readonly queuedAt: number;
  /** As stored; what was cut short is closed in it. */
  readonly state: RunState;
  readonly writer: RunWriter;
  /** The run's, so that answers can be checked while it is paused. */
  readonly checks: InputChecks;
  readonly ledger: Ledger;
  readonly log: Log;
  /** The worker is shutting down: no step begins. */
  readonly draining: boolean;
  readonly drainCommands: () => Promise<void>;
  readonly between: <T>(decide: () => Promise<T>) => Promise<T>;
  /** A step wants to begin while the worker drains, and no other is running. */
  readonly onBoundary: () => void;
  readonly onOverflow: (failure: AgentError) => void;
}

export class Execution implements ScopeRun {
  readonly ref: RunRef;
  readonly attempt: number;
  readonly execution: number;
  readonly lane: AgentLane;
  readonly gate: DrainGate;
  readonly ledger: Ledger;
  readonly tools: readonly Tool[];
  readonly checks: InputChecks;
  readonly approvals: Underway<ApprovalState> = new Underway();
  readonly inputs: Underway<InputState> = new Underway();
  readonly calls: Underway<void> = new Underway();
  readonly taken: TakenItems = new TakenItems();
  readonly app: AppState = new AppState(this);
  readonly broker: Broker;
  readonly queuedAt: number;
  readonly log: Log;
  /** How the agent ended. Never rejects. */
  readonly end: Promise<Ending>;
  readonly #options: ExecutionOptions;
  readonly #abort: AbortController = new AbortController();
  readonly #activity: Activity;
  /** Key → id of a try that `step.retry` has begun: everything else that ran was closed. */
  readonly #started: Map<string, string>;
  #done: DoneOperations;
  #inboxAwaited = 0;

  /** Executes the agent at once. */
  constructor(options: ExecutionOptions) {
    const { ref, attempt, execution, state, writer, ledger, agent, broker, log } = options;
    this.#options = options;
    // Whatever waits in the agent listens: how many there are says nothing of a leak.
    setMaxListeners(0, this.#abort.signal);
    this.ref = ref;
    this.attempt = attempt;
    this.execution = execution;
    this.queuedAt = options.queuedAt;
    this.checks = options.checks;
    this.#done = doneOperations(state);
    this.#started = new Map(
      state.steps.flatMap(({ key, step_id, status }) =>
        status === "running" && key !== undefined ? [[key, step_id]] : [],
      ),
    );
    this.ledger = ledger;
    this.tools = agent.tools;
    this.broker = broker;
    this.log = log;
    this.lane = new AgentLane({
      writer,
      session: ref.session,
      run: ref.run,
      onOverflow: options.onOverflow,
    });
    this.gate = new DrainGate(options.onBoundary);
    if (options.draining) this.gate.drain();
    this.#activity = new Activity(state, (status) => {
      void this.lane.append({ type: "run.status", payload: { status } });
    });
    const settled = ledger.until((now) => (isOpen(now) ? undefined : true), this.signal);
    void handled(settled.then(() => this.#activity.settled()));
    this.end = runAgent(this, agent, state);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get done(): DoneOperations {
    return this.#done;
  }

  refresh(): void {
    this.#done = doneOperations(this.ledger.state);
  }

  takeStarted(key: string): string | undefined {
    const id = this.#started.get(key);
    this.#started.delete(key);
    return id;
  }

  get inboxAwaited(): boolean {
    return this.#inboxAwaited > 0;
  }

  get stopped(): boolean {
    return this.#abort.signal.aborted;
  }

  /** From here on the agent writes nothing more, whether it heeds its signal or not. */
  stop(reason: StopReason, cause?: unknown): void {
    if (this.stopped) return;
    const stop = new RunStopped(reason, cause);
    this.lane.stop(stop);
    this.#abort.abort(stop);
  }

  now(): number {
    return Date.now();
  }

  drainCommands(): Promise<void> {
    return this.#options.drainCommands();
  }

  between<T>(decide: () => Promise<T>): Promise<T> {
    return this.#options.between(decide);
  }

  busy(wait: Wait): () => void {
    const over = this.#activity.begin(wait);
    const left = this.gate.wait();
    return () => {
      left();
      over();
    };
  }

  awaitInbox(): () => void {
    const over = this.busy("input");
    this.#inboxAwaited += 1;
    return () => {
      this.#inboxAwaited -= 1;
      over();
    };
  }

  keep(value: unknown): Promise<unknown> {
    return keptResult(this, value);
  }

  whole(value: unknown): Promise<unknown> {
    return patiently(() => resolve(this.broker.objects, this.ref, value), this.signal);
  }

  ephemeral(event: NewEphemeral): void {
    if (!this.stopped) this.#options.writer.ephemeral(event);
  }
}
