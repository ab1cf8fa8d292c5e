import { heldValue } from "./compare-and-set.ts";
import { type RawMessage, TooManyResults } from "./direct-read.ts";
import { BrokerUnavailable } from "./errors.ts";
import { type ReadBroker, unlessSilent } from "./last-read.ts";
import { leaderRead } from "./leader-read.ts";

/** Most subjects that the server names in one answer to `multi_last`. */
const MULTI_LAST = 1_024;
const PAGE_MESSAGES = 512;
const PAGE_BYTES = 1024 * 1024;
/** A replica is behind its leader for milliseconds; after a fault for as long as it takes to notice. */
const LAG_MS = 5_000;
const RETRY_MS = 20;

/**
 * The last messages of all subjects that match a filter, in no order of use. A replica answers, and
 * counts once it has what the leader says is last: an entry that was acknowledged is never missed.
 * Rejects with BrokerUnavailable. For buckets with a history of one.
 */
export async function readKeys(
  broker: ReadBroker,
  stream: string,
  filter: string,
): Promise<readonly RawMessage[]> {
  const giveUpAt = Date.now() + LAG_MS;
  do {
    const last = await leaderRead(broker.nc, stream, { last_by_subj: filter });
    if (!last) return [];
    const found = await readAll(broker, stream, filter).catch(unlessSilent);
    if (found?.some((raw) => raw.streamSeq >= last.streamSeq)) {
      return found.filter((raw) => heldValue(raw) !== undefined);
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  } while (Date.now() < giveUpAt);
  throw new BrokerUnavailable(`the replicas of ${stream} lag behind its leader`);
}

async function readAll(
  { reader }: ReadBroker,
  stream: string,
  filter: string,
): Promise<readonly RawMessage[]> {
  try {
    const answer = await reader.read(stream, { multi_last: [filter], batch: MULTI_LAST });
    return answer.messages;
  } catch (error) {
    if (!(error instanceof TooManyResults)) throw error;
  }
  // From the stream's begin: slower (5 ms to find the first among 100,000 keys), and without a limit.
  const found: RawMessage[] = [];
  for (let seq = 1; ;) {
    const { messages, pending } = await reader.read(stream, {
      seq,
      next_by_subj: filter,
      batch: PAGE_MESSAGES,
      max_bytes: PAGE_BYTES,
    });
    found.push(...messages);
    const last = messages.at(-1);
    if (!last || pending === 0) return found;
    seq = last.streamSeq + 1;
  }
}
