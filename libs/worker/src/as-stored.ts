/** Values as the log keeps them. */
import { AgentError } from "./failure.ts";

/**
 * What a later attempt would get back: the JSON of the output. Given to the first attempt too, so that
 * an agent that leans on a Date or a class fails in its first test and not in its first takeover.
 */
export function asStored(output: unknown): unknown {
  if (output === undefined) return undefined;
  let json: string | undefined;
  try {
    json = JSON.stringify(output);
  } catch (error) {
    throw new AgentError("invalid_output", "the output is not JSON", { cause: error });
  }
  return json === undefined ? undefined : JSON.parse(json);
}
