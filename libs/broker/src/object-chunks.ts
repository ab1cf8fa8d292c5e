import type { Place } from "./compare-and-set.ts";
import type { RawMessage } from "./direct-read.ts";
import { LogCorrupt } from "./errors.ts";
import { H } from "./headers.ts";
import { type ReadBroker, unlessSilent } from "./last-read.ts";
import { leaderRead } from "./leader-read.ts";
import type { ObjectAbout } from "./object-about.ts";

/** Of one page: memory of a reader, however large the object is. */
const PAGE_CHUNKS = 8;
const PAGE_BYTES = 2 * 1024 * 1024;

/**
 * The chunks of an object in order, in pages by Direct Get: no consumer is made. What a replica
 * does not have (yet) is asked of the leader, one chunk at a time. Returns "gone" when the leader
 * has it neither. Rejects with BrokerUnavailable, or LogCorrupt when the order is broken.
 */
export async function* readChunks(
  broker: ReadBroker,
  { stream, subject }: Place,
  about: ObjectAbout,
): AsyncGenerator<Uint8Array, "whole" | "gone", undefined> {
  let next = about.first;
  let index = 0;
  while (index < about.chunks) {
    const batch = Math.min(PAGE_CHUNKS, about.chunks - index);
    const query = { seq: next, next_by_subj: subject, batch, max_bytes: PAGE_BYTES };
    const page = await broker.reader.read(stream, query).catch(unlessSilent);
    let messages: readonly RawMessage[] = page?.messages ?? [];
    if (messages.length === 0) {
      const raw = await leaderRead(broker.nc, stream, { seq: next, next_by_subj: subject });
      if (!raw) return "gone";
      messages = [raw];
    }
    for (const message of messages) {
      const chunk = Number(message.headers.get(H.chunk));
      // What is too old goes first, also while it is read: a later chunk in the place of an earlier one.
      if (chunk > index) return "gone";
      if (chunk !== index) throw new LogCorrupt(`${subject} has chunk ${chunk} in place ${index}`);
      yield message.body;
      index += 1;
      next = message.streamSeq + 1;
    }
  }
  return "whole";
}
