/** What is sent to the provider: options, messages and tools as its API names them. Pure. */
import { AgentError, type AvailableTool } from "@throughline/worker";
import { z } from "zod";
import type { ChatMessage } from "./conversation.ts";

/** Those that are passed on. Others are another agent's, or the client's own. */
const optionsSchema = z.object({
  model: z.string().min(1).optional(),
  system: z.string().optional(),
  temperature: z.number().min(0).max(2).optional(),
  top_p: z.number().min(0).max(1).optional(),
  max_tokens: z.int().min(1).optional(),
  /** What newer models of OpenAI take instead of `max_tokens`. */
  max_completion_tokens: z.int().min(1).optional(),
  reasoning_effort: z.string().optional(),
  seed: z.int().optional(),
  stop: z.union([z.string(), z.array(z.string()).max(4)]).optional(),
  parallel_tool_calls: z.boolean().optional(),
  /** `auto`, `none`, `required`, the name of a tool, or the API's own object for one. */
  tool_choice: z
    .union([
      z.string().min(1),
      z.object({ type: z.literal("function"), function: z.object({ name: z.string().min(1) }) }),
    ])
    .optional(),
});

export type ModelOptions = z.infer<typeof optionsSchema>;

/** Later ones win. Throws AgentError `invalid_options` with the option's name. */
export function readOptions(
  ...given: readonly (Readonly<Record<string, unknown>> | undefined)[]
): ModelOptions {
  const parsed = optionsSchema.safeParse(Object.assign({}, ...given));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new AgentError(
    "invalid_options",
    `options.${issue?.path.join(".") ?? ""}: ${issue?.message ?? "is invalid"}`,
  );
}

export interface ToolNames {
  /** As the provider knows it. */
  sent(name: string): string;
  /** As the run knows it; a name that the model made up comes back as it is. */
  meant(sent: string): string;
}

/** Providers take fewer characters than a tool's name may have: `files.read/v2` goes out as `files_read_v2`. */
export function nameTools(tools: readonly AvailableTool[]): ToolNames {
  const out = new Map<string, string>();
  const back = new Map<string, string>();
  for (const { name } of tools) {
    const plain = name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60);
    let sent = plain;
    for (let n = 2; back.has(sent); n++) sent = `${plain}_${n}`;
    out.set(name, sent);
    back.set(sent, name);
  }
  return {
    sent: (name) => out.get(name) ?? name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64),
    meant: (sent) => back.get(sent) ?? sent,
  };
}

export interface Ask {
  readonly options: ModelOptions;
  readonly defaultModel: string;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly AvailableTool[];
  readonly names: ToolNames;
  /** The model has answered before in this run: a choice that forces a tool was honoured, and forcing it again would never end. */
  readonly answered: boolean;
}

export interface RequestBody {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly [option: string]: unknown;
}

/** The body of `POST …/chat/completions`. */
export function requestBody(ask: Ask): RequestBody {
  const { options, tools, names } = ask;
  const { model, system, tool_choice: _, ...passed } = options;
  const messages: ChatMessage[] = [
    ...(system === undefined || system === ""
      ? []
      : [{ role: "system" as const, content: system }]),
    ...ask.messages,
  ];
  const choice = toolChoice(ask);
  return {
    ...passed,
    model: model ?? ask.defaultModel,
    messages: messages.map((message) => renamed(message, names)),
    ...(tools.length === 0
      ? {}
      : {
          tools: tools.map((tool) => ({
            type: "function",
            function: {
              name: names.sent(tool.name),
              ...(tool.description === "" ? {} : { description: tool.description }),
              // Without a schema some providers refuse the tool: any object will do.
              parameters:
                Object.keys(tool.input_schema).length === 0
                  ? { type: "object", properties: {} }
                  : tool.input_schema,
            },
          })),
          ...(choice === undefined ? {} : { tool_choice: choice }),
        }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

function toolChoice({ options, names, answered }: Ask): unknown {
  const choice = options.tool_choice;
  if (choice === undefined || choice === "auto" || choice === "none") return choice;
  if (answered) return "auto";
  if (choice === "required") return choice;
  const name = typeof choice === "string" ? choice : choice.function.name;
  return { type: "function", function: { name: names.sent(name) } };
}

function renamed(message: ChatMessage, names: ToolNames): ChatMessage {
  if (message.role !== "assistant" || message.tool_calls === undefined) return message;
  return {
    ...message,
    tool_calls: message.tool_calls.map((call) => ({
      ...call,
      function: { ...call.function, name: names.sent(call.function.name) },
    })),
  };
}
