/** From chunks to what they mean: pieces of text by channel, whole tool calls, usage, the end. Pure. */
import type { Chunk } from "./chunk.ts";

/** The field that a provider tells its model's reasoning in. */
export type ReasoningField = "reasoning_content" | "reasoning";

export type Piece =
  | { readonly kind: "text"; readonly channel: "text"; readonly text: string }
  | {
      readonly kind: "text";
      readonly channel: "reasoning";
      readonly text: string;
      readonly field: ReasoningField;
    }
  | {
      readonly kind: "tool_call";
      /** As the provider gave it; may be empty. */
      readonly id: string;
      readonly name: string;
      /** As it came: JSON, if the model has kept to it. */
      readonly source: string;
    }
  | { readonly kind: "usage"; readonly model: string; readonly usage: Usage }
  | { readonly kind: "finish"; readonly reason: string };

export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_input_tokens?: number;
  readonly reasoning_tokens?: number;
}

export interface Assembler {
  /** A finish reason was among the chunks. */
  readonly finished: boolean;
  take(chunk: Chunk): Piece[];
  /** What is still held when the stream ends: calls, the usage, and a finish (`reason`) where none was said. */
  end(reason?: string): Piece[];
}

type CallPart = NonNullable<
  NonNullable<NonNullable<Chunk["choices"][number]["delta"]>["tool_calls"]>[number]
>;

/**
 * A call is whole only at the finish: pieces of several calls may alternate. Usage is taken from the last
 * chunk that has one, since some providers repeat a running total on every chunk.
 */
export function openAssembler(): Assembler {
  const calls = openCalls();
  let usage: Chunk["usage"];
  let model = "unknown";
  let finished = false;

  return {
    get finished() {
      return finished;
    },
    take(chunk) {
      const pieces: Piece[] = [];
      model = chunk.model || model;
      usage = chunk.usage ?? usage;
      // Further choices are alternatives of the same answer: the first is played.
      const choice = chunk.choices[0];
      if (choice === undefined) return pieces;
      const { delta } = choice;
      // Some providers tell it in both fields, or leave one of them empty.
      const field = delta?.reasoning_content ? "reasoning_content" : "reasoning";
      const reasoning = delta?.[field];
      if (reasoning) pieces.push({ kind: "text", channel: "reasoning", text: reasoning, field });
      const said = delta?.content || delta?.refusal;
      if (said) pieces.push({ kind: "text", channel: "text", text: said });
      for (const part of delta?.tool_calls ?? []) calls.add(part);
      if (choice.finish_reason) {
        pieces.push(...calls.whole());
        // Said once: a provider that repeats it on its usage chunk does not finish twice.
        if (!finished) pieces.push({ kind: "finish", reason: choice.finish_reason });
        finished = true;
      }
      return pieces;
    },
    end(reason = "cut_off") {
      const pieces = calls.whole();
      if (!finished) pieces.push({ kind: "finish", reason });
      if (usage) pieces.push({ kind: "usage", model, usage: toUsage(usage) });
      return pieces;
    },
  };
}

interface HeldCall {
  readonly index: number;
  id: string;
  name: string;
  source: string;
}

function openCalls(): { add(part: CallPart): void; whole(): Piece[] } {
  let held: HeldCall[] = [];
  /** Providers that number their calls wrongly (all 0, or not at all) still give each call its own id. */
  const find = ({ index, id }: CallPart): HeldCall | undefined => {
    const same = held.findLast((call) => index == null || call.index === index);
    return same !== undefined && id && same.id !== "" && same.id !== id ? undefined : same;
  };
  return {
    add(part) {
      let call = find(part);
      if (call === undefined) {
        call = { index: part.index ?? held.length, id: "", name: "", source: "" };
        held.push(call);
      }
      call.id ||= part.id ?? "";
      // In pieces with some, whole on every piece with others.
      const name = part.function?.name ?? "";
      if (name !== call.name) call.name += name;
      call.source += part.function?.arguments ?? "";
    },
    whole() {
      const whole = held
        .toSorted((a, b) => a.index - b.index)
        .map(({ id, name, source }): Piece => ({ kind: "tool_call", id, name, source }));
      held = [];
      return whole;
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

export type Arguments =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly why: string };

/** Of a call without arguments some providers send nothing at all. Models do send broken ones. */
export function parseArguments(source: string): Arguments {
  if (source.trim() === "") return { ok: true, value: {} };
  try {
    return { ok: true, value: JSON.parse(source) };
  } catch (error) {
    if (error instanceof SyntaxError) return { ok: false, why: error.message };
    throw error;
  }
}

/** What the wire has room for: a name that a model made up must not make the run fail. */
export function toolName(name: string): string {
  return name.replace(/[^A-Za-z0-9_.:/-]/g, "_").slice(0, 128) || "unnamed";
}
