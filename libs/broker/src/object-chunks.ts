import type { Broker } from "./broker.ts";
import type { Place } from "./compare-and-set.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { LogCorrupt } from "./errors.ts";
import { H } from "./headers.ts";
import { leaderRead } from "./leader-read.ts";
import type { ObjectAbout } from "./object-about.ts";

export type ChunkBroker = Pick<Broker, "nc"> & { readonly reader: Pick<DirectReader, "read"> };

/** Of one page: memory of a reader, however large the object is. */
const PAGE_CHUNKS = 8;
const PAGE_BYTES = 2 * 1024 * 1024;

/**
 * The chunks of an object in order, in pages by Direct Get: no consumer is made. What a replica
 * does not have (yet) is asked of the leader, one chunk at a time. Returns "gone" when the leader
 * has it neither. Rejects with BrokerUnavailable, or LogCorrupt when the order is broken.
 */
export async function* readChunks(
  broker: ChunkBroker,
  { stream, subject }: Place,
  about: ObjectAbout,
): AsyncGenerator<Uint8Array, "whole" | "gone", undefined> {
  let next = about.first;
  let index = 0;
  while (index < about.chunks) {
    const page = await broker.reader.read(stream, {
      seq: next,
      next_by_subj: subject,
      batch: Math.min(PAGE_CHUNKS, about.chunks - index),
      max_bytes: PAGE_BYTES,
    });
    let messages: readonly RawMessage[] = page.messages;
    if (messages.length === 0) {
      const raw = await leaderRead(broker.nc, stream, { seq: next, next_by_subj: subject });
      if (!raw) return "gone";
      messages = [raw];
    }
    for (const message of messages) {
      const chunk = Number(message.headers.get(H.chunk));
      // Streams let go of the oldest first: a later chunk in the place of an earlier one.
      if (chunk > index && index === 0) return "gone";
      if (chunk !== index) throw new LogCorrupt(`${subject} has chunk ${chunk} in place ${index}`);
      yield message.body;
      index += 1;
      next = message.streamSeq + 1;
    }
  }
  return "whole";
}
