/** One line of a recorded stream: a chat-completion chunk, as providers with that API send it. */
import { AgentError } from "@throughline/worker";
import { z } from "zod";

const text = z.string().nullish();

const fields = z.object({
  model: z.string().optional(),
  choices: z
    .array(
      z.object({
        delta: z
          .object({
            content: text,
            /** DeepSeek's name for it; `reasoning` is OpenRouter's. */
            reasoning_content: text,
            reasoning: text,
            tool_calls: z
              .array(
                z.object({
                  index: z.int().min(0).max(127),
                  id: z.string().nullish(),
                  function: z.object({ name: text, arguments: text }).nullish(),
                }),
              )
              .nullish(),
          })
          .nullish(),
        finish_reason: text,
      }),
    )
    .optional(),
  usage: z
    .object({
      prompt_tokens: z.int().min(0),
      completion_tokens: z.int().min(0),
      prompt_tokens_details: z.object({ cached_tokens: z.int().min(0).nullish() }).nullish(),
      completion_tokens_details: z.object({ reasoning_tokens: z.int().min(0).nullish() }).nullish(),
    })
    .nullish(),
});

/** Providers send either or both: the last chunk may hold the usage alone. */
const chunkSchema = fields
  .refine(
    ({ choices, usage }) => choices !== undefined || usage != null,
    "has neither choices nor usage",
  )
  .transform((chunk) => ({ ...chunk, choices: chunk.choices ?? [] }));

export type Chunk = z.infer<typeof chunkSchema>;

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
  const parsed = chunkSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new AgentError(
    "invalid_recording",
    `line ${line} of the recording is no chat-completion chunk (${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"})`,
  );
}
