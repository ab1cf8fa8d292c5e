/** Messages of a scope: begun with an event, written on two lanes, ended with an event. */
import { type AgentLane, handled } from "./agent-lane.ts";
import type { Message, MessageOptions } from "./agent.ts";

export interface MessageRequest {
  readonly key: string;
  readonly messageId: string;
  readonly stepId: string | undefined;
  readonly options: MessageOptions;
}

/** An earlier attempt has stored it whole: what the agent writes again is swallowed. */
export function storedMessage(lane: AgentLane): Message {
  const swallow = (): Promise<void> => handled(lane.refusal() ?? Promise.resolve());
  return { stored: true, write: swallow, end: swallow };
}

/** The messages of a scope that were begun and not ended. */
export class OpenMessages {
  readonly #open: Set<Message> = new Set();

  open(lane: AgentLane, { key, messageId, stepId, options }: MessageRequest): Message {
    const within = stepId === undefined ? {} : { step_id: stepId };
    const started = lane.append({
      type: "message.started",
      ...within,
      key,
      payload: {
        message_id: messageId,
        role: options.role ?? "assistant",
        channel: options.channel ?? "text",
      },
    });
    const text = lane.text(messageId, stepId, started);
    let ending: Promise<void> | undefined;
    const end = async (reason: string): Promise<void> => {
      await text.end();
      await lane.append({
        type: "message.completed",
        ...within,
        payload: { message_id: messageId, length: text.length, finish_reason: reason },
      });
      this.#open.delete(message);
    };
    const write = async (piece: string): Promise<void> => {
      if (ending) throw new TypeError("the message was ended");
      await text.write(piece);
    };
    const message: Message = {
      stored: false,
      write: (piece) => handled(write(piece)),
      end: (reason = "stop") => (ending ??= handled(end(reason))),
    };
    this.#open.add(message);
    return message;
  }

  /** What the author left open when the step ended. */
  async endAll(reason: string): Promise<void> {
    await Promise.all([...this.#open].map((message) => message.end(reason)));
  }
}
