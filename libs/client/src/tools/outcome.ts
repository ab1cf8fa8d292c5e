/** What is reported of a call. */
import { ToolError, type ClientTool, type ToolCallContext } from "./tool.ts";

export type Outcome =
  | { readonly result: unknown }
  | {
      readonly error: {
        readonly code: string;
        readonly message: string;
        readonly retryable: boolean;
      };
    };

/** Never rejects: what goes wrong is an outcome as well. */
export async function outcomeOf(
  tool: ClientTool,
  args: unknown,
  call: ToolCallContext,
): Promise<Outcome> {
  try {
    const value: unknown = (await tool.run(args, call)) ?? null;
    // As it will be sent: what is no JSON is found here and not in the outbox.
    const text: string | undefined = JSON.stringify(value);
    if (text === undefined) return failure("tool_error", `a tool cannot return a ${typeof value}`);
    return { result: JSON.parse(text) };
  } catch (error) {
    if (error instanceof ToolError) return failure(error.code, error.message, error.retryable);
    return failure("tool_error", error instanceof Error ? error.message : String(error));
  }
}

export function failure(code: string, message: string, retryable = false): Outcome {
  return { error: { code, message: message.slice(0, MAX_MESSAGE), retryable } };
}

/** A stack of a thousand lines is nothing for a model; the protocol takes 65,536. */
const MAX_MESSAGE = 4_096;
