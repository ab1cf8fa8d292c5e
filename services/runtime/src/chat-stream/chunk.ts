/** One chunk of a streamed chat completion, as providers with that API send it, live or recorded. */
import { z } from "zod";

const text = z.string().nullish();

const fields = z.object({
  model: z.string().nullish(),
  choices: z
    .array(
      z.object({
        delta: z
          .object({
            content: text,
            /** What a model says instead of an answer that it refuses to give. */
            refusal: text,
            /** DeepSeek's name for it; `reasoning` is OpenRouter's. */
            reasoning_content: text,
            reasoning: text,
            tool_calls: z
              .array(
                z.object({
                  /** Some providers send whole calls and leave it out. */
                  index: z.int().min(0).max(127).nullish(),
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
    .nullish(),
  usage: z
    .object({
      prompt_tokens: z.int().min(0),
      completion_tokens: z.int().min(0),
      prompt_tokens_details: z.object({ cached_tokens: z.int().min(0).nullish() }).nullish(),
      completion_tokens_details: z.object({ reasoning_tokens: z.int().min(0).nullish() }).nullish(),
    })
    .nullish()
    // A note beside the answer: one that is odd is left out.
    .catch(null),
});

/** Providers send either or both: the last chunk may hold the usage alone. */
const chunkSchema = z
  .looseObject({})
  .refine(({ choices, usage }) => choices != null || usage != null, "has neither choices nor usage")
  .pipe(fields)
  .transform((chunk) => ({ ...chunk, choices: chunk.choices ?? [] }));

export type Chunk = z.infer<typeof chunkSchema>;

export type Decoded =
  | { readonly ok: true; readonly chunk: Chunk }
  | { readonly ok: false; readonly why: string };

export function decodeChunk(value: unknown): Decoded {
  const parsed = chunkSchema.safeParse(value);
  if (parsed.success) return { ok: true, chunk: parsed.data };
  const issue = parsed.error.issues[0];
  return { ok: false, why: `${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}` };
}
