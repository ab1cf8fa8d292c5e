/** The tools that an answer asks for, all at once; their outcomes as the model is told them. */
import type { RunContext, ToolCall } from "@throughline/worker";
import { parseArguments } from "../chat-stream/assemble.ts";
import { type Call, type ChatMessage, type Outcome, toolResult } from "./conversation.ts";

/** In the order of the calls, whichever was done first: providers want each call answered, and a redone run the same list. */
export async function runCalls(
  { tools }: Pick<RunContext, "tools">,
  calls: readonly Call[],
): Promise<ChatMessage[]> {
  const outcomes = new Map<string, Outcome>();
  const whole: ToolCall[] = [];
  for (const { id, name, source } of calls) {
    const args = parseArguments(source);
    if (args.ok) {
      whole.push({ id, name, args: args.value });
      continue;
    }
    const error = { code: "invalid_input", message: `the arguments are not JSON: ${args.why}` };
    outcomes.set(id, { ok: false, error });
    // Nothing is executed with half of its arguments, but who watches shall see what the model did.
    await tools.record({ name, args: source, result: { error } });
  }
  if (whole.length > 0) {
    for await (const outcome of tools.call(whole)) {
      const id = whole[outcome.index]?.id;
      if (id !== undefined) outcomes.set(id, outcome);
    }
  }
  return calls.map(({ id }) => toolResult(id, outcomes.get(id) ?? UNKNOWN));
}

const UNKNOWN: Outcome = {
  ok: false,
  error: { code: "outcome_unknown", message: "the call has no outcome" },
};
