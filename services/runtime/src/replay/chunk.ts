/** One line of a recorded stream. */
import { AgentError } from "@throughline/worker";
import { type Chunk, decodeChunk } from "../chat-stream/chunk.ts";

/** `line` counts from 1. Undefined for what carries nothing: blank lines, SSE comments, `[DONE]`. */
export function parseChunk(source: string, line: number): Chunk | undefined {
  const trimmed = source.trim();
  const body = trimmed.startsWith("data:") ? trimmed.slice("data:".length).trim() : trimmed;
  if (body === "" || body === "[DONE]" || body.startsWith(":")) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (error) {
    throw new AgentError("invalid_recording", `line ${line} of the recording is not JSON`, {
      cause: error,
    });
  }
  const decoded = decodeChunk(value);
  if (decoded.ok) return decoded.chunk;
  throw new AgentError(
    "invalid_recording",
    `line ${line} of the recording is no chat-completion chunk (${decoded.why})`,
  );
}
