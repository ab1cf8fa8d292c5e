/** One answer of the model, as a step: what it says is shown while it comes, what it said is the step's output. */
import type { Message, StepScope } from "@throughline/worker";
import { type Piece, type ReasoningField, toolName } from "../chat-stream/assemble.ts";
import type { Call, Turn } from "./conversation.ts";
import type { ToolNames } from "./request.ts";

type Channel = "text" | "reasoning";

/** Plays a provider's answer into the step's messages. Rejects with what the provider's stream throws. */
export async function play(
  step: Pick<StepScope, "message" | "usage">,
  pieces: AsyncIterable<Piece>,
  asked: { readonly model: string; readonly names: ToolNames },
): Promise<Omit<Turn, "interrupted" | "heard">> {
  let open: { readonly channel: Channel; readonly message: Message } | undefined;
  let text = "";
  let reasoning: { field: ReasoningField; text: string } | undefined;
  let finish = "stop";
  let { model } = asked;
  const calls: Call[] = [];

  const close = async (reason: string): Promise<void> => {
    await open?.message.end(reason);
    open = undefined;
  };
  const write = async (channel: Channel, piece: string): Promise<void> => {
    if (open?.channel !== channel) {
      await close("stop");
      open = { channel, message: step.message({ channel }) };
    }
    await open.message.write(piece);
  };

  for await (const piece of pieces) {
    switch (piece.kind) {
      case "text":
        if (piece.channel === "text") text += piece.text;
        else reasoning = { field: piece.field, text: (reasoning?.text ?? "") + piece.text };
        await write(piece.channel, piece.text);
        break;
      case "tool_call":
        calls.push({
          id: unused(piece.id, calls),
          name: toolName(asked.names.meant(piece.name)),
          source: piece.source,
        });
        break;
      case "usage":
        if (piece.model !== "unknown") model = piece.model;
        await step.usage({ model: model.slice(0, MAX_LABEL), ...piece.usage });
        break;
      case "finish":
        finish = piece.reason.slice(0, MAX_LABEL);
        await close(finish);
        break;
    }
  }
  return {
    text,
    ...(reasoning === undefined || calls.length === 0 ? {} : { reasoning }),
    calls,
    finish_reason: finish,
    model,
  };
}

/** The wire's room for a model's name and a finish reason. */
const MAX_LABEL = 256;

/** Some providers give no ids, or the same one to every call: the conversation needs them apart. */
function unused(id: string, calls: readonly Call[]): string {
  return id !== "" && !calls.some((call) => call.id === id) ? id : `call_${calls.length + 1}`;
}
