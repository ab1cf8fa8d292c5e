/**
 * `replay`: plays a recorded provider stream as if the model spoke now.
 *
 * Recordings carry a `created` second and no time per chunk, so the rate is ours: 50 chunks (about as
 * many tokens) a second at speed 1, a usual rate of hosted models.
 */
import { constants, open } from "node:fs/promises";
import {
  AgentError,
  type Agent,
  defineAgent,
  type Message,
  type RunContext,
} from "@throughline/worker";
import { z } from "zod";
import { openAssembler, parseArguments, type Piece, toolName } from "../chat-stream/assemble.ts";
import { openPacer } from "../pace.ts";
import type { AllowedPath, Roots } from "../roots.ts";
import { parseChunk } from "./chunk.ts";

const CHUNKS_PER_SECOND = 50;

/** A recorded answer is well below 1 MiB; this stops a log file given by mistake. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const MAX_LINE = 1024 * 1024;

const inputSchema = z.strictObject({
  /** A file of JSON lines within the allowed roots. */
  file: z.string().min(1).max(4096),
  /** 1 = 50 chunks a second; 1000 is as fast as the log takes it. */
  speed: z.number().min(0.01).max(1000).default(1),
});

export type ReplayInput = z.infer<typeof inputSchema>;

export interface ReplayOutput {
  readonly model: string | null;
  readonly finish_reason: string;
  readonly chunks: number;
  /** UTF-16 code units of text, without reasoning. */
  readonly text_length: number;
  readonly tool_calls: number;
}

export function replay({ roots }: { readonly roots: Roots }): Agent {
  return defineAgent({
    name: "replay",
    description:
      "Plays a recorded provider stream (JSON lines of chat-completion chunks): messages, reasoning, tool calls, usage.",
    // Of this repository, which `npm start` allows.
    examples: [{ file: "services/runtime/recordings/tool-call.jsonl", speed: 1 }],
    input: (raw) => inputSchema.parse(raw),
    run: (ctx) => play(ctx, roots),
  });
}

async function play(ctx: RunContext<ReplayInput>, roots: Roots): Promise<ReplayOutput> {
  const at = await roots.find(ctx.input.file);
  const pacer = openPacer(1000 / (CHUNKS_PER_SECOND * ctx.input.speed), ctx.signal);
  const assembler = openAssembler();
  const stage = openStage(ctx);
  let chunks = 0;
  let line = 0;
  for await (const source of readLines(at)) {
    const chunk = parseChunk(source, ++line);
    if (chunk === undefined) continue;
    chunks++;
    // What an earlier attempt played to its end is not waited for again.
    if (!stage.swallowing) await pacer.next();
    ctx.signal.throwIfAborted();
    for (const piece of assembler.take(chunk)) await stage.play(piece);
  }
  if (chunks === 0) throw new AgentError("invalid_recording", "the recording holds no chunk");
  for (const piece of assembler.end()) await stage.play(piece);
  return { ...stage.summary, chunks };
}

interface Stage {
  readonly swallowing: boolean;
  play(piece: Piece): Promise<void>;
  readonly summary: Omit<ReplayOutput, "chunks">;
}

/** One message is open at a time: a change of channel, or the finish, ends it. */
function openStage(ctx: RunContext): Stage {
  let open: { channel: "text" | "reasoning"; message: Message } | undefined;
  let model: string | null = null;
  let finishReason = "cut_off";
  let textLength = 0;
  let toolCalls = 0;
  const close = async (reason: string): Promise<void> => {
    await open?.message.end(reason);
    open = undefined;
  };
  return {
    get swallowing() {
      return open?.message.stored ?? false;
    },
    get summary() {
      return { model, finish_reason: finishReason, text_length: textLength, tool_calls: toolCalls };
    },
    async play(piece) {
      switch (piece.kind) {
        case "text":
          if (open?.channel !== piece.channel) {
            await close("stop");
            open = { channel: piece.channel, message: ctx.message({ channel: piece.channel }) };
          }
          if (piece.channel === "text") textLength += piece.text.length;
          return open.message.write(piece.text);
        case "tool_call":
          await close("tool_calls");
          toolCalls++;
          return ctx.tools.record({
            name: toolName(piece.name),
            args: shownArguments(piece.source),
            result: { replayed: true },
          });
        case "usage":
          model = piece.model;
          return ctx.usage({ model: piece.model, ...piece.usage });
        case "finish":
          finishReason = piece.reason;
          return close(piece.reason);
      }
    },
  };
}

/** Broken ones are shown as they came. */
function shownArguments(source: string): unknown {
  const parsed = parseArguments(source);
  return parsed.ok ? parsed.value : source;
}

async function* readLines(at: AllowedPath): AsyncGenerator<string> {
  // Without waiting: a pipe that nobody writes to would hold one of the process's four file threads for ever.
  const file = await open(at.path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw new AgentError("invalid_recording", "the recording is not a file");
    if (stat.size > MAX_FILE_BYTES) {
      throw new AgentError(
        "invalid_recording",
        `the recording is larger than ${MAX_FILE_BYTES} bytes`,
      );
    }
    for await (const line of file.readLines({ autoClose: false })) {
      if (line.length > MAX_LINE)
        throw new AgentError("invalid_recording", `a line is longer than ${MAX_LINE} characters`);
      yield line;
    }
  } finally {
    await file.close();
  }
}
