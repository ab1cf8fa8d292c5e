/** Tool calls, on the agent's side. */
import type { AvailableTool, ToolCall, ToolCallOptions, ToolOutcome } from "../agent.ts";
import { AgentError } from "../failure.ts";
import type { CallSite, ScopeRun } from "../scope-run.ts";

export function availableTools(run: ScopeRun): readonly AvailableTool[] {
  return run.tools.map(({ name, description, input_schema }) => ({
    name,
    description,
    input_schema,
    executor: "worker",
  }));
}

export function callTools(
  _run: ScopeRun,
  _at: CallSite,
  _calls: readonly ToolCall[],
  _options: ToolCallOptions,
): AsyncIterable<ToolOutcome> {
  throw new AgentError("not_allowed", "no tools can be called yet");
}
