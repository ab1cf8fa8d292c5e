/** What a tool's author writes, and the tool as a worker executes it. */
import type { Tool, ToolContext } from "../agent.ts";

/** Of a tool that a model provider may be told of: PROTOCOL.md, `tools`. */
const NAME = /^[A-Za-z0-9_.:/-]{1,128}$/;

export interface ToolDefinition<Args, Result> {
  /** What calls name: 1 to 128 of A-Z a-z 0-9 _ . : / -. */
  readonly name: string;
  /** For the model, and for people who list tools. */
  readonly description?: string;
  /** JSON Schema of the arguments (default: any object). */
  readonly input_schema?: Readonly<Record<string, unknown>>;
  /** Checks the arguments; what it throws fails the call with `invalid_input`. */
  readonly parse?: (raw: unknown) => Args;
  /**
   * May it be executed twice? A call whose worker died while it ran is executed again if so; else
   * (default) it fails with `outcome_unknown`, and the agent decides.
   */
  readonly idempotent?: boolean;
  /** Somebody must allow each call. */
  readonly approval?: {
    readonly risk: "low" | "medium" | "high";
    /** What the person who decides reads (default: the arguments as JSON). */
    readonly description?: (args: Args) => string;
    /** Default 15 min. Nobody's answer is a denial. */
    readonly expiresInMs?: number;
  };
  /** How long it may take, the wait for its approval not counted (default: as long as the run). */
  readonly timeoutMs?: number;
  /** Its result, as JSON, is the call's. What it throws is the call's error, for the agent to deal with. */
  readonly run: (args: Args, ctx: ToolContext) => Promise<Result> | Result;
}

/** Throws TypeError for a name that no call could have. */
export function defineTool<Args = unknown, Result = unknown>(
  definition: ToolDefinition<Args, Result>,
): Tool {
  const { name, approval, timeoutMs, run, parse } = definition;
  if (!NAME.test(name)) {
    throw new TypeError(
      `${JSON.stringify(name)} is no tool name: 1 to 128 of A-Z a-z 0-9 _ . : / -`,
    );
  }
  return {
    name,
    description: definition.description ?? "",
    input_schema: definition.input_schema ?? { type: "object" },
    idempotent: definition.idempotent ?? false,
    approval: approval && {
      risk: approval.risk,
      description: (args) => (approval.description ?? shownArgs)(args as Args),
      expiresInMs: approval.expiresInMs,
    },
    timeoutMs,
    // Without a parser the author has declared that any arguments will do.
    parse: parse ?? ((raw) => raw),
    run: async (args, ctx) => run(args as Args, ctx),
  };
}

const MAX_SHOWN = 2_000;

function shownArgs(args: unknown): string {
  return (JSON.stringify(args) ?? "").slice(0, MAX_SHOWN);
}
