/**
 * `llm`: an agent that uses tools, over any OpenAI-compatible chat-completions endpoint.
 *
 * Each answer of the model is a step, so it is paid for once: a worker that takes the run over finds it
 * in the log. A try that fails is a failed step; what it had shown stays, closed with `error`, and is no
 * part of the conversation, which is built from the outputs of completed steps alone.
 */
import {
  type Agent,
  AgentError,
  defineAgent,
  type Instruction,
  type RunContext,
  type Tool,
} from "@throughline/worker";
import {
  answer,
  before,
  type ChatMessage,
  instruction,
  remembered,
  type Said,
  saidIn,
  type Turn,
} from "./conversation.ts";
import { inputSchema, type LlmInput } from "./input.ts";
import { play } from "./model-step.ts";
import type { Provider } from "./provider.ts";
import { type ModelOptions, nameTools, readOptions, requestBody } from "./request.ts";
import { runCalls } from "./tool-calls.ts";

export interface LlmOptions {
  readonly provider: Provider;
  readonly defaultModel: string;
  /** Those that this worker executes. */
  readonly tools: readonly Tool[];
  /** Answers of the model in one run. A model that calls tools for ever costs money for ever. */
  readonly maxRounds: number;
  /** Tries after the first that failed for a reason that may pass. */
  readonly retries: number;
  /** Before the first of them, in ms, where the provider does not say; doubled each time. */
  readonly backoffMs: number;
}

export interface LlmOutput {
  /** The last answer. */
  readonly text: string;
  readonly model: string;
  /** Why the last answer ended; `length` is one that was cut by `max_tokens`. */
  readonly finish_reason: string;
  readonly rounds: number;
  readonly tool_calls: number;
  /** What was asked and answered, without tools: what the session's next runs remember. */
  readonly transcript: readonly Said[];
}

export function llm(options: LlmOptions): Agent {
  return defineAgent({
    name: "llm",
    description:
      "Answers with a language model, and uses the tools of its worker and of the run's client.",
    examples: [{ prompt: "What can you do?" }],
    input: (raw) => inputSchema.parse(raw),
    tools: options.tools,
    run: (ctx) => converse(ctx, options),
  });
}

async function converse(ctx: RunContext<LlmInput>, given: LlmOptions): Promise<LlmOutput> {
  let options = readOptions(ctx.options);
  const tools = ctx.tools.available;
  const names = nameTools(tools);
  const earlier = remembered(await ctx.session.history());
  const messages: ChatMessage[] = [...earlier, { role: "user", content: ctx.input.prompt }];
  const warn = (wrong: AgentError): void =>
    ctx.log.warn({ code: wrong.code }, `${wrong.message}: the options before hold on`);
  let toolCalls = 0;
  for (let round = 1; round <= given.maxRounds; round++) {
    const turn = await ctx.step(
      "model",
      async (step): Promise<Turn> => {
        const told = { interrupted: step.interrupted, heard: await step.inbox.take() };
        const body = requestBody({
          options: withHeard(options, told.heard),
          defaultModel: given.defaultModel,
          messages: [...messages, ...before(told)],
          tools,
          names,
          answered: round > 1,
        });
        const pieces = given.provider.ask(body, ctx.signal);
        return { ...told, ...(await play(step, pieces, { model: body.model, names })) };
      },
      { retries: given.retries, backoffMs: given.backoffMs },
    );
    options = withHeard(options, turn.heard, warn);
    messages.push(...before(turn), ...answer(turn));
    if (turn.calls.length > 0) {
      toolCalls += turn.calls.length;
      messages.push(...(await runCalls(ctx, turn.calls)));
    }
    // An instruction that came during the last answer wants one of its own.
    const heard = await ctx.inbox.take();
    options = withHeard(options, heard, warn);
    messages.push(...heard.map(instruction));
    if (turn.calls.length === 0 && heard.length === 0) {
      return {
        text: turn.text,
        model: turn.model,
        finish_reason: turn.finish_reason,
        rounds: round,
        tool_calls: toolCalls,
        transcript: saidIn(messages.slice(earlier.length)),
      };
    }
  }
  throw new AgentError(
    "too_many_rounds",
    `the model had not come to an end after ${given.maxRounds} answers (TL_LLM_MAX_ROUNDS)`,
  );
}

/**
 * An instruction's options hold from then on. Those of one that names a wrong one do not: work that is
 * under way is not lost by it. `told` is called with what is wrong.
 */
function withHeard(
  options: ModelOptions,
  heard: readonly Instruction[],
  told: (wrong: AgentError) => void = () => undefined,
): ModelOptions {
  let good = options;
  for (const one of heard) {
    try {
      good = readOptions(good, one.options);
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      told(error);
    }
  }
  return good;
}
