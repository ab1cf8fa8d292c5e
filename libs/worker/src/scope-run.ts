/** What durable operations need of the execution that they are part of. */
import type { Broker, NewEphemeral, RunRef } from "@throughline/broker";
import type { ApprovalState, InputState } from "@throughline/protocol";
import type { AgentLane } from "./agent-lane.ts";
import type { Tool } from "./agent.ts";
import type { AppState } from "./app-state.ts";
import type { DoneOperations } from "./done-operations.ts";
import type { DrainGate } from "./drain-gate.ts";
import type { TakenItems } from "./inbox.ts";
import type { Ledger } from "./ledger.ts";
import type { Log } from "./log.ts";
import type { Place } from "./operation-key.ts";
import type { InputChecks } from "./requests/input-checks.ts";
import type { Underway } from "./requests/underway.ts";

/** What an agent may wait for, besides its own work. `input`: an answer, an instruction, or a word on a failed step. */
export type Wait = "approval" | "input" | "tools";

export interface ScopeRun {
  readonly ref: RunRef;
  readonly attempt: number;
  /** 1 for the attempt's first; each `run.resume` after an interrupt begins another. */
  readonly execution: number;
  /** What was stored before this execution, or before the last `refresh`. */
  readonly done: DoneOperations;
  /** Keys and counts of what goes on are never looked up again, so other branches of the agent do not notice. */
  refresh(): void;
  /** Id of a try of that step which `step.retry` has begun before this execution; once. */
  takeStarted(key: string): string | undefined;
  readonly lane: AgentLane;
  readonly gate: DrainGate;
  /** The agent's. Aborted with a RunStopped. */
  readonly signal: AbortSignal;
  readonly ledger: Ledger;
  /** The agent's own, executed by this worker. */
  readonly tools: readonly Tool[];
  /** To be set as long as the input is waited for. */
  readonly checks: InputChecks;
  readonly approvals: Underway<ApprovalState>;
  readonly inputs: Underway<InputState>;
  /** Resolve when the call's outcome is stored. */
  readonly calls: Underway<void>;
  readonly taken: TakenItems;
  readonly app: AppState;
  readonly broker: Broker;
  /** Stream sequence of `run.queued`: what of the session has a lower one was there before. */
  readonly queuedAt: number;
  readonly log: Log;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Resolves when every command that the log's leader holds now is answered in the log. */
  drainCommands(): Promise<void>;
  /** Decides something between two commands: none is judged until it has settled. */
  between<T>(decide: () => Promise<T>): Promise<T>;
  /** The agent waits, and `run.status` says so, until the result is called. To be called right after what it waits for was appended. */
  busy(wait: Wait): () => void;
  /** The same, for the inbox: what comes meanwhile is not `queued`. */
  awaitInbox(): () => void;
  /** What an event holds of a value: a large one is put into an object. */
  keep(value: unknown): Promise<unknown>;
  /** The whole value of what an event holds. */
  whole(value: unknown): Promise<unknown>;
  /** Sends an event that is not stored; nothing once the execution was stopped. */
  ephemeral(event: NewEphemeral): void;
}

/** Where in the agent an operation is called: keys are counted by `place`, events carry the step's id. */
export interface CallSite {
  readonly place: Place;
  readonly stepId: string | undefined;
}
