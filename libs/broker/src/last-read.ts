import type { Broker } from "./broker.ts";
import { heldValue, type Place } from "./compare-and-set.ts";
import { type DirectReader, NotAnswered, type RawMessage } from "./direct-read.ts";
import { leaderRead } from "./leader-read.ts";

export type ReadBroker = Pick<Broker, "nc"> & { readonly reader: Pick<DirectReader, "read"> };

/**
 * The value of a place, from any replica: it may be some milliseconds old. What a replica does
 * not have is asked of the leader, and so is what a frozen one does not answer. Undefined: the
 * leader has none. Rejects with BrokerUnavailable.
 */
export async function readLast(
  broker: ReadBroker,
  { stream, subject }: Place,
): Promise<RawMessage | undefined> {
  const query = { last_by_subj: subject };
  const near = await broker.reader.read(stream, query).catch(unlessSilent);
  return heldValue(near?.messages[0] ?? (await leaderRead(broker.nc, stream, query)));
}

/** For `catch`: a replica that says nothing is passed over, any other fault is the reader's. */
export function unlessSilent(error: unknown): undefined {
  if (!(error instanceof NotAnswered)) throw error;
  return undefined;
}
