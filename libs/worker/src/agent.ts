/** What an agent's author sees: an agent is a function of a run's context. */
import { isId, type EventPayload, type InboxItem } from "@throughline/protocol";
import type { Failure } from "./failure.ts";
import type { Log } from "./log.ts";

export interface MessageOptions {
  /** Default `assistant`. */
  readonly role?: EventPayload<"message.started">["role"];
  /** Default `text`. */
  readonly channel?: EventPayload<"message.started">["channel"];
}

/** A message that is being written. */
export interface Message {
  /** An earlier attempt wrote it to its end: what is written now is swallowed, and need not be waited for. */
  readonly stored: boolean;
  /** Shown at once, stored within half a second. Awaits while the log does not keep up. */
  write(text: string): Promise<void>;
  /** Resolves when the whole message is stored. `finish_reason` defaults to `stop`. */
  end(finishReason?: string): Promise<void>;
}

/** A tool call that was executed elsewhere (by the provider, or when a recording was made). */
export interface RecordedToolCall {
  readonly name: string;
  readonly args: unknown;
  readonly result: unknown;
}

export interface ApprovalRequest {
  /** What is to be done, in a word: `deploy`, `shell`. */
  readonly operation: string;
  /** For the person who decides. */
  readonly description: string;
  /** Default `medium`. */
  readonly risk?: "low" | "medium" | "high";
  /** What is approved: an answer that names the hash of other arguments is `stale`. */
  readonly args?: unknown;
  /** Default 15 min. */
  readonly expiresInMs?: number;
  /** What holds when nobody answers in time (default `deny`). */
  readonly default?: "allow" | "deny";
  readonly tool_call_id?: string;
}

export interface ApprovalDecision {
  readonly decision: "allow" | "deny";
  /** Nobody answered in time: the request's default holds. */
  readonly expired: boolean;
  readonly by?: string;
  readonly reason?: string;
}

export interface InputRequest<T = unknown> {
  readonly prompt: string;
  /** JSON Schema of the answer, for those who show a form. */
  readonly schema?: Readonly<Record<string, unknown>>;
  /** Checks the answer. What it throws is told to who answered, and the request stays open. */
  readonly parse?: (content: unknown) => T;
}

/** What came by `run.continue`. */
export interface Instruction {
  readonly content: unknown;
  readonly attachments?: InboxItem["attachments"];
  readonly options?: Readonly<Record<string, unknown>>;
  readonly by?: string;
}

/** Instructions that come by `run.continue`, each seen once. */
export interface Inbox {
  /** What has come and was not taken yet, the oldest first. */
  take(): Promise<readonly Instruction[]>;
  /** The oldest that was not taken yet; waits for one. The run is `waiting_input` meanwhile. */
  next(): Promise<Instruction>;
}

export interface ToolCall {
  readonly name: string;
  readonly args: unknown;
  /** The caller's own, given back with the outcome. */
  readonly id?: string;
}

export interface ToolCallOptions {
  readonly timeoutMs?: number;
}

export type ToolOutcome = {
  /** Place in the list of calls. */
  readonly index: number;
  /** The caller's own. */
  readonly id: string | undefined;
  readonly tool_call_id: string;
  readonly name: string;
} & (
  | { readonly ok: true; readonly result: unknown }
  | { readonly ok: false; readonly error: Failure }
);

export interface AvailableTool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  readonly executor: "worker" | "client";
}

export interface Tools {
  /** The agent's own, and those that the run's client executes. */
  readonly available: readonly AvailableTool[];
  /** Begins all calls at once, whether they are iterated or not; outcomes come in the order in which they are there. */
  call(calls: readonly ToolCall[], options?: ToolCallOptions): AsyncIterable<ToolOutcome>;
  /** Puts a call that was executed elsewhere into the run's log. Nothing is executed. */
  record(call: RecordedToolCall): Promise<void>;
}

export interface ToolContext {
  readonly run_id: string;
  /**
   * The same whenever this call is executed, and another for each call of the run. With `run_id` before
   * it, a key by which whoever the tool calls can tell a repetition.
   */
  readonly tool_call_id: string;
  /** Aborted when the run was stopped, or the call has lasted too long. */
  readonly signal: AbortSignal;
  /** Shown to whoever watches; not stored. `fraction` is 0 to 1. */
  progress(word: { fraction?: number; message?: string; output?: string }): void;
  readonly log: Log;
}

/** A tool as a worker executes it. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  /** A call whose worker died while it ran is executed again; else it fails with `outcome_unknown`. */
  readonly idempotent: boolean;
  /** Somebody must allow each call. `description` of the arguments as they were parsed. */
  readonly approval:
    | {
        readonly risk: "low" | "medium" | "high";
        readonly description: (args: unknown) => string;
        readonly expiresInMs: number | undefined;
      }
    | undefined;
  readonly timeoutMs: number | undefined;
  /** Throws what the author's parser throws. */
  readonly parse: (raw: unknown) => unknown;
  readonly run: (args: unknown, ctx: ToolContext) => Promise<unknown>;
}

export interface StepOptions {
  /** How often a try that failed for a retryable reason is followed by another (default 0). */
  readonly retries?: number;
  /** Before the first of them, in ms; doubled each time (default 1,000). An error's own `retryAfterMs` goes before. */
  readonly backoffMs?: number;
  /**
   * After the last failure: `throw` (the default), or `ask`: the step waits for `step.retry`, and the
   * run is `waiting_input` meanwhile.
   */
  readonly onFailure?: "throw" | "ask";
}

/** Durable operations at one place of an agent: the run itself, or one of its steps. */
export interface Scope {
  /** Appends an event of the application's own; resolves when it is stored. */
  emit(name: string, value: unknown): Promise<void>;
  /** Applies a JSON Merge Patch (RFC 7396) to the application's state, which clients see. */
  setState(patch: unknown): Promise<void>;
  /** Begins a message. It is part of this scope: a step that is done again writes its messages again. */
  message(options?: MessageOptions): Message;
  /**
   * Runs a part of the work once. When the run is taken over by another worker, or goes on after an
   * interrupt, `run` is executed again from its start; a step that was completed is skipped and gives its
   * stored output, one that failed throws its stored failure, one that was interrupted is done again. The
   * output must be JSON, and what comes back is always the stored form of it. Steps are found by their
   * name and their order among those of that name, so an agent must call them in the same order every time.
   */
  step<T>(
    name: string,
    body: (step: StepScope) => Promise<T> | T,
    options?: StepOptions,
  ): Promise<T>;
  /** Tokens spent on one model call. */
  usage(usage: EventPayload<"usage.updated">): Promise<void>;
  /** Asks whoever attends the run. The first answer decides. */
  approval(request: ApprovalRequest): Promise<ApprovalDecision>;
  /** Asks for an input (`input.requested`); the first answer that `parse` takes counts. `ctx.input` is what the run was started with. */
  ask<T = unknown>(request: InputRequest<T>): Promise<T>;
  readonly inbox: Inbox;
  readonly tools: Tools;
}

export interface StepScope extends Scope {
  readonly step_id: string;
  /** What earlier tries of this very step had written, in the channel `text`, when they were interrupted; the oldest first. */
  readonly interrupted: readonly string[];
}

/** A run of the session that had ended before this one was queued. */
export interface PastRun {
  readonly run_id: string;
  readonly agent: string;
  readonly status: "completed" | "failed" | "cancelled";
  readonly input: unknown;
  readonly output: unknown;
  readonly messages: readonly {
    readonly role: string;
    readonly channel: string;
    readonly text: string;
  }[];
  /** Milliseconds since the epoch. */
  readonly ended_at: number;
}

export interface Session {
  readonly id: string;
  /** The session's defaults, with what this run was started with over them. */
  readonly options: Readonly<Record<string, unknown>>;
  /** The last `limit` (20) runs that had ended before this one was queued, without those that it repeats; the oldest first. */
  history(limit?: number): Promise<readonly PastRun[]>;
}

export interface RunContext<Input = unknown> extends Scope {
  readonly run_id: string;
  readonly session_id: string;
  /** 1 for the first; each takeover counts one up. */
  readonly attempt: number;
  readonly input: Input;
  readonly options: Readonly<Record<string, unknown>>;
  readonly session: Session;
  /** Aborted, with a RunStopped, when the run is interrupted, cancelled, past its deadline, lost or handed on. */
  readonly signal: AbortSignal;
  /** To the process's log, and as ephemeral `log` events to whoever watches the run. */
  readonly log: Log;
}

export interface AgentDefinition<Input, Output> {
  /** What `run.start` names: 1 to 64 of A-Z a-z 0-9 _ -. */
  readonly name: string;
  readonly description?: string;
  /** Inputs that show what it takes. */
  readonly examples?: readonly unknown[];
  /** Checks the input; what it throws fails the run with `invalid_input` (or an AgentError's own code). */
  readonly input?: (raw: unknown) => Input;
  /** Those that this worker executes. */
  readonly tools?: readonly Tool[];
  /** Its result is the run's output. It may be executed again, from its start: by another worker, or after an interrupt. */
  readonly run: (ctx: RunContext<Input>) => Promise<Output> | Output;
}

/** An agent as a worker hosts it. */
export interface Agent {
  readonly name: string;
  readonly description: string;
  readonly examples: readonly unknown[];
  readonly tools: readonly Tool[];
  /** Checks the input (throws what the author's parser throws), and gives what is to be run with it. */
  readonly prepare: (raw: unknown) => (ctx: Omit<RunContext, "input">) => Promise<unknown>;
}

/** Throws TypeError for a name that could not be part of a subject. */
export function defineAgent<Input = unknown, Output = unknown>(
  definition: AgentDefinition<Input, Output>,
): Agent {
  if (!isId(definition.name)) {
    throw new TypeError(
      `${JSON.stringify(definition.name)} is no agent name: 1 to 64 of A-Z a-z 0-9 _ -`,
    );
  }
  return {
    name: definition.name,
    description: definition.description ?? "",
    examples: definition.examples ?? [],
    tools: definition.tools ?? [],
    prepare: (raw) => {
      const { input: parse, run } = definition;
      // Without a parser the author has declared that any input will do.
      const input = parse === undefined ? (raw as Input) : parse(raw);
      return async (ctx) => run({ ...ctx, input });
    },
  };
}
