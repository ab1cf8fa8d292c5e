/** Tools that this client executes for the runs that it follows. */
import type { CommandPayload } from "@throughline/protocol";

export interface ClientTool {
  /** For the model. */
  readonly description?: string;
  /** JSON Schema of the arguments, for the model. The arguments are not checked against it here. */
  readonly input_schema?: Record<string, unknown>;
  /**
   * Whether it may be executed again where nobody can tell whether it was: its page was reloaded in the
   * middle (no: such a call is reported as `outcome_unknown`).
   */
  readonly idempotent?: boolean;
  /** Milliseconds after which a call is free for others when this device has fallen silent (30,000). */
  readonly leaseMs?: number;
  /** Returns any JSON value, or throws: both are reported, and the agent deals with them. */
  readonly run: (args: unknown, call: ToolCallContext) => unknown;
}

export interface ToolCallContext {
  readonly session_id: string;
  readonly run_id: string;
  readonly tool_call_id: string;
  /** Aborted when nobody wants the outcome any more: the run was cancelled or interrupted, or another has the call. */
  readonly signal: AbortSignal;
}

export type ClientTools = Readonly<Record<string, ClientTool>>;

/** Thrown by a tool, it names the code that the agent sees; any other error is a `tool_error`. */
export class ToolError extends Error {
  override readonly name = "ToolError";
  readonly code: string;
  readonly retryable: boolean;

  constructor(code: string, message: string, options: { retryable?: boolean } = {}) {
    super(message);
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}

type Declared = NonNullable<CommandPayload<"run.start">["tools"]>;

/** As `run.start` brings them. */
export function declared(tools: ClientTools): Declared {
  return Object.entries(tools).map(([name, { description, input_schema }]) => ({
    name,
    ...(description === undefined ? {} : { description }),
    ...(input_schema === undefined ? {} : { input_schema }),
  }));
}
