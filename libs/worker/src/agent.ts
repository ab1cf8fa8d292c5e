/** What an agent's author sees: an agent is a function of a run's context. */
import { isId, type EventPayload } from "@throughline/protocol";
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

/** Durable operations at one place of an agent: the run itself, or one of its steps. */
export interface Scope {
  /** Appends an event of the application's own; resolves when it is stored. */
  emit(name: string, value: unknown): Promise<void>;
  /** Applies a JSON Merge Patch (RFC 7396) to the application's state, which clients see. */
  setState(patch: unknown): Promise<void>;
  /** Begins a message. It is part of this scope: a step that is done again writes its messages again. */
  message(options?: MessageOptions): Message;
  /**
   * Runs a part of the work once. When the run is taken over by another worker, `run` is executed
   * again from its start; a step that was completed is skipped and gives its stored output, one that
   * failed throws its stored failure. The output must be JSON, and what comes back is always the
   * stored form of it. Steps are found by their name and their order among those of that name, so an
   * agent must call them in the same order every time.
   */
  step<T>(name: string, body: (step: StepScope) => Promise<T> | T): Promise<T>;
  /** Tokens spent on one model call. */
  usage(usage: EventPayload<"usage.updated">): Promise<void>;
  readonly tools: {
    /** Puts a call that was executed elsewhere into the run's log. Nothing is executed. */
    record(call: RecordedToolCall): Promise<void>;
  };
}

export interface StepScope extends Scope {
  readonly step_id: string;
}

export interface RunContext<Input = unknown> extends Scope {
  readonly run_id: string;
  readonly session_id: string;
  /** 1 for the first; each takeover counts one up. */
  readonly attempt: number;
  readonly input: Input;
  readonly options: Readonly<Record<string, unknown>>;
  /** Aborted, with a RunStopped, when the run is cancelled, past its deadline, lost or handed on. */
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
  /** Its result is the run's output. It may be executed again, from its start, by another worker. */
  readonly run: (ctx: RunContext<Input>) => Promise<Output> | Output;
}

/** An agent as a worker hosts it. */
export interface Agent {
  readonly name: string;
  readonly description: string;
  readonly examples: readonly unknown[];
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
    prepare: (raw) => {
      const { input: parse, run } = definition;
      // Without a parser the author has declared that any input will do.
      const input = parse === undefined ? (raw as Input) : parse(raw);
      return async (ctx) => run({ ...ctx, input });
    },
  };
}
