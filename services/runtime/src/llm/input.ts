/** What the agent is asked. */
import { z } from "zod";

/** A text, or `{"prompt": text}`. */
export const inputSchema = z.preprocess(
  (raw) => (typeof raw === "string" ? { prompt: raw } : raw),
  z.strictObject({
    prompt: z.string().refine((text) => text.trim() !== "", "is empty"),
  }),
);

export type LlmInput = z.infer<typeof inputSchema>;

const asText = z.union([
  z.string(),
  z.object({ prompt: z.string() }).transform(({ prompt }) => prompt),
  z.object({ text: z.string() }).transform(({ text }) => text),
]);

/** The text in an input or an instruction, of this agent or another: what is none is shown as JSON. */
export function promptOf(content: unknown): string {
  const parsed = asText.safeParse(content);
  return parsed.success ? parsed.data : JSON.stringify(content ?? null);
}
