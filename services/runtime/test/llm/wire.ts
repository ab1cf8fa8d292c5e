/** What providers send, made by hand: chunks, and the lines that they go out in. */

const base = {
  id: "cmpl-1",
  object: "chat.completion.chunk",
  created: 1_764_657_993,
  model: "m-1",
};

function chunk(delta: unknown, finish_reason: string | null = null): unknown {
  return { ...base, choices: [{ index: 0, delta, logprobs: null, finish_reason }], usage: null };
}

export const says = (content: string): unknown => chunk({ content });
export const thinks = (reasoning_content: string): unknown => chunk({ reasoning_content });
export const finish = (reason = "stop"): unknown => chunk({}, reason);

export interface CallPiece {
  readonly index?: number;
  readonly id?: string;
  readonly name?: string;
  readonly args?: string;
}

export function calls(...pieces: readonly CallPiece[]): unknown {
  return chunk({
    tool_calls: pieces.map(({ index, id, name, args }) => ({
      ...(index === undefined ? {} : { index }),
      ...(id === undefined ? {} : { id, type: "function" }),
      function: {
        ...(name === undefined ? {} : { name }),
        ...(args === undefined ? {} : { arguments: args }),
      },
    })),
  });
}

export const usage = (input = 7, output = 3): unknown => ({
  ...base,
  choices: [],
  usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
});

export const DONE = "data: [DONE]\n\n";

export function sse(chunks: readonly unknown[], end = "\n"): string {
  return chunks.map((one) => `data: ${JSON.stringify(one)}${end}${end}`).join("");
}

/** A whole answer of text, as most providers send it. */
export function answering(text: string): string {
  const pieces = text.match(/\s*\S+/g) ?? [text];
  return (
    sse([chunk({ role: "assistant", content: "" }), ...pieces.map(says), finish(), usage()]) + DONE
  );
}

/** A whole answer that asks for tools. */
export function calling(...wanted: readonly { id: string; name: string; args: unknown }[]): string {
  const whole = wanted.map(({ id, name, args }, index) => ({
    index,
    id,
    name,
    args: JSON.stringify(args),
  }));
  return sse([calls(...whole), finish("tool_calls"), usage()]) + DONE;
}
