/** From chunks to what they mean: pieces of text by channel, whole tool calls, usage, the end. Pure. */
import type { Chunk } from "./chunk.ts";

export type Piece =
  | { readonly kind: "text"; readonly channel: "text" | "reasoning"; readonly text: string }
  | { readonly kind: "tool_call"; readonly name: string; readonly args: unknown }
  | { readonly kind: "usage"; readonly model: string; readonly usage: Usage }
  | { readonly kind: "finish"; readonly reason: string };

export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_input_tokens?: number;
  readonly reasoning_tokens?: number;
}

export interface Assembler {
  take(chunk: Chunk): Piece[];
  /** What is still held when the recording ends: calls, the usage, a finish where none was said. */
  end(): Piece[];
}

interface HeldCall {
  name: string;
  args: string;
}

/**
 * A call is whole only at the finish: pieces of several calls may alternate. Usage is taken from the last
 * chunk that has one, since some providers repeat a running total on every chunk.
 */
export function openAssembler(): Assembler {
  const calls = new Map<number, HeldCall>();
  let usage: Chunk["usage"];
  let model = "unknown";
  let finished = false;

  const wholeCalls = (): Piece[] => {
    const whole = [...calls]
      .sort(([a], [b]) => a - b)
      .map(([, call]): Piece => ({
        kind: "tool_call",
        name: call.name,
        args: parseArgs(call.args),
      }));
    calls.clear();
    return whole;
  };

  return {
    take(chunk) {
      const pieces: Piece[] = [];
      model = chunk.model ?? model;
      usage = chunk.usage ?? usage;
      // Further choices are alternatives of the same answer: the first is played.
      const choice = chunk.choices[0];
      if (choice === undefined) return pieces;
      const reasoning = choice.delta?.reasoning_content ?? choice.delta?.reasoning;
      if (reasoning) pieces.push({ kind: "text", channel: "reasoning", text: reasoning });
      if (choice.delta?.content)
        pieces.push({ kind: "text", channel: "text", text: choice.delta.content });
      for (const part of choice.delta?.tool_calls ?? []) {
        const call = calls.get(part.index) ?? { name: "", args: "" };
        call.name += part.function?.name ?? "";
        call.args += part.function?.arguments ?? "";
        calls.set(part.index, call);
      }
      if (choice.finish_reason) {
        pieces.push(...wholeCalls(), { kind: "finish", reason: choice.finish_reason });
        finished = true;
      }
      return pieces;
    },
    end() {
      const pieces = wholeCalls();
      if (!finished) pieces.push({ kind: "finish", reason: "cut_off" });
      if (usage) pieces.push({ kind: "usage", model, usage: toUsage(usage) });
      return pieces;
    },
  };
}

function toUsage(usage: NonNullable<Chunk["usage"]>): Usage {
  const cached = usage.prompt_tokens_details?.cached_tokens;
  const reasoning = usage.completion_tokens_details?.reasoning_tokens;
  return {
    input_tokens: usage.prompt_tokens,
    output_tokens: usage.completion_tokens,
    ...(cached == null ? {} : { cached_input_tokens: cached }),
    ...(reasoning == null ? {} : { reasoning_tokens: reasoning }),
  };
}

/** Models do send broken arguments: then the text is shown as it came. */
function parseArgs(text: string): unknown {
  if (text === "") return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}
