/*
 * Messages: text that a model writes. It is shown by deltas (ephemeral) and kept by chunks (durable).
 * Offsets and lengths count UTF-16 code units, so a cut may fall inside a surrogate pair; JSON then
 * carries the half as \udXXX, and both halves put together are the character again.
 */
import { z } from "zod";
import { count, id, label } from "../fields.ts";
import { durable, ephemeral } from "./envelope.ts";

export const messageStarted = durable(
  "message.started",
  "A message begins. An id that was there before is started anew, empty.",
  z.object({
    message_id: id,
    role: z.enum(["assistant", "user", "system", "tool"]),
    channel: z.enum(["text", "reasoning"]),
  }),
);

const piece = z.object({ message_id: id, offset: count, text: z.string() });

export const modelChunk = durable(
  "model.chunk",
  "Text that stays: everything from `offset` on is replaced by it.",
  piece,
);

export const messageCompleted = durable(
  "message.completed",
  "The message is whole; `length` is its length.",
  z.object({ message_id: id, length: count, finish_reason: label }),
);

export const modelDelta = ephemeral(
  "model.delta",
  "Text as it comes. May be lost, doubled or late: the next chunk settles it.",
  piece,
);
