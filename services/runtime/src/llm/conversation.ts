/**
 * The conversation as the model is given it, built from what the run has stored: the session's earlier
 * runs, the prompt, the outputs of the model's steps, the tools' outcomes, and what was said meanwhile.
 * Executed again, the agent builds the same one. Pure.
 */
import type { Instruction, PastRun, ToolOutcome } from "@throughline/worker";
import { z } from "zod";
import type { ReasoningField } from "../chat-stream/assemble.ts";
import { promptOf } from "./input.ts";

export interface WireCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

export type ChatMessage =
  | { readonly role: "system" | "user"; readonly content: string }
  | ({
      readonly role: "assistant";
      readonly content: string | null;
      readonly tool_calls?: readonly WireCall[];
    } & { readonly [Field in ReasoningField]?: string })
  | { readonly role: "tool"; readonly tool_call_id: string; readonly content: string };

/** A call that the model asks for. */
export interface Call {
  /** Unique within the answer. */
  readonly id: string;
  readonly name: string;
  /** As it came: JSON, if the model has kept to it. */
  readonly source: string;
}

/** Output of a model's step: what the model was told within it, and what it answered. JSON. */
export interface Turn {
  /** What it had said when it was interrupted within this step. */
  readonly interrupted: readonly string[];
  readonly heard: readonly Instruction[];
  readonly text: string;
  /** Kept beside tool calls only: providers that think between calls want it back, others never. */
  readonly reasoning?: { readonly field: ReasoningField; readonly text: string };
  readonly calls: readonly Call[];
  readonly finish_reason: string;
  readonly model: string;
}

/** Told to a model that goes on without a new instruction; two answers in a row are refused by some providers. */
export const GO_ON = "You were interrupted. Go on where you stopped, without repeating it.";

/** What the model is told before it answers within a step. */
export function before(turn: Pick<Turn, "interrupted" | "heard">): ChatMessage[] {
  const said = turn.interrupted.filter((text) => text !== "");
  const heard = turn.heard.map(instruction);
  return [
    ...said.map((content): ChatMessage => ({ role: "assistant", content })),
    ...(said.length > 0 && heard.length === 0
      ? [{ role: "user", content: GO_ON } satisfies ChatMessage]
      : heard),
  ];
}

/** An answer without a word is left out: providers refuse messages that hold nothing. */
export function answer(turn: Turn): ChatMessage[] {
  const { text, calls, reasoning } = turn;
  if (calls.length === 0) return text === "" ? [] : [{ role: "assistant", content: text }];
  const asked: ChatMessage = {
    role: "assistant",
    content: text === "" ? null : text,
    tool_calls: calls.map(({ id, name, source }) => ({
      id,
      type: "function",
      function: { name, arguments: source.trim() === "" ? "{}" : source },
    })),
    ...(reasoning === undefined ? {} : { [reasoning.field]: reasoning.text }),
  };
  return [asked];
}

export function instruction({ content }: Pick<Instruction, "content">): ChatMessage {
  return { role: "user", content: promptOf(content) };
}

/** What one tool may add to the conversation. More would push everything else out of the model's view. */
const MAX_RESULT = 64_000;

export type Outcome =
  | { readonly ok: true; readonly result: unknown }
  | {
      readonly ok: false;
      readonly error: Pick<Extract<ToolOutcome, { ok: false }>["error"], "code" | "message">;
    };

export function toolResult(id: string, outcome: Outcome): ChatMessage {
  const text = outcome.ok
    ? resultText(outcome.result)
    : `Error (${outcome.error.code}): ${outcome.error.message}`;
  return { role: "tool", tool_call_id: id, content: shortened(text) };
}

function resultText(result: unknown): string {
  return typeof result === "string" ? result : JSON.stringify(result ?? null);
}

/** For the mark itself, whatever its number. */
const MARK_ROOM = 50;
const LEFT_OUT = "[…]";

/** Keeps both ends: what a command prints last says how it went. */
function shortened(text: string, most: number = MAX_RESULT): string {
  if (text.length <= most) return text;
  const half = Math.floor(most / 2);
  const left = text.length - 2 * half;
  return `${text.slice(0, half)}\n[… ${left} characters left out …]\n${text.slice(-half)}`;
}

/** About 30,000 tokens: the session's memory leaves room for the run itself, whatever was said before. */
const MAX_HISTORY = 120_000;

/**
 * What one run may take of it: of one that was asked or has said more, the beginning and the end are
 * remembered, so that no single one pushes all the others out.
 */
const MAX_REMEMBERED_RUN = MAX_HISTORY / 2;

/** The session's earlier runs, the oldest first; where there is too much, the newest are kept. */
export function remembered(runs: readonly PastRun[]): ChatMessage[] {
  const kept: ChatMessage[][] = [];
  let room = MAX_HISTORY;
  for (const run of runs.toReversed()) {
    const messages = withinRun(rememberedRun(run));
    room -= lengthOf(messages);
    if (room < 0) break;
    kept.unshift(messages);
  }
  return kept.flat();
}

function lengthOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0);
}

/** Cuts the longest messages to one length, by which the run fits. Short ones stay as they are. */
function withinRun(messages: readonly Said[]): Said[] {
  if (lengthOf(messages) <= MAX_REMEMBERED_RUN) return [...messages];
  const lengths = messages.map(({ content }) => content.length).toSorted((a, b) => a - b);
  let room = MAX_REMEMBERED_RUN;
  let most = 0;
  for (const [index, length] of lengths.entries()) {
    most = Math.floor(room / (lengths.length - index));
    if (length > most) break;
    room -= length;
  }
  return messages.map(({ role, content }) => ({ role, content: cutTo(content, most) }));
}

/** Of very many messages there is no room for more than the mark. */
function cutTo(content: string, most: number): string {
  if (content.length <= most) return content;
  return most > MARK_ROOM ? shortened(content, most - MARK_ROOM) : LEFT_OUT.slice(0, most);
}

const saidSchema = z.object({ role: z.enum(["user", "assistant"]), content: z.string() });
const transcriptSchema = z.object({ transcript: z.array(saidSchema).min(1) });

export type Said = z.infer<typeof saidSchema>;

/** Of a run's conversation what people and the model said to each other. */
export function saidIn(messages: readonly ChatMessage[]): Said[] {
  return inTurns(
    messages.flatMap(({ role, content }) =>
      (role === "user" || role === "assistant") && content !== null && content !== ""
        ? [{ role, content }]
        : [],
    ),
  );
}

/** Answers between which only tools ran are one: without the tools they would be two in a row. */
function inTurns(said: readonly Said[]): Said[] {
  const turns: Said[] = [];
  for (const { role, content } of said) {
    const last = turns.at(-1);
    if (role === "assistant" && last?.role === "assistant") {
      turns[turns.length - 1] = { role, content: `${last.content}\n\n${content}` };
    } else turns.push({ role, content });
  }
  return turns;
}

/** This agent's own output says it best: with what it was told on the way, and without what failed. */
function rememberedRun(run: PastRun): Said[] {
  const own = transcriptSchema.safeParse(run.output);
  if (own.success) return inTurns(own.data.transcript);
  const said = run.messages
    .filter(({ role, channel, text }) => role === "assistant" && channel === "text" && text !== "")
    .map(({ text }) => text);
  const answered = said.length > 0 ? said.join("\n\n") : outputText(run);
  return [
    { role: "user", content: promptOf(run.input) },
    { role: "assistant", content: answered },
  ];
}

/** Runs of other agents may say what they found in their output alone. */
function outputText({ status, output }: PastRun): string {
  if (output === undefined || output === null)
    return `[This run ended without an answer: ${status}.]`;
  return shortened(resultText(output));
}
