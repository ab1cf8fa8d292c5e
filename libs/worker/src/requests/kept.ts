/** Large results, on their way into the log. */
import { type Broker, BrokerUnavailable, offload, type RunRef } from "@throughline/broker";
import { MAX_BATCH_BYTES, MAX_INLINE_BYTES, type NewEvent } from "@throughline/protocol";

const RETRY_MS = 100;
/** Room for what the writer adds to an event: ids, place and time. */
const ENVELOPE_BYTES = 512;
/** The reference of an object takes a fifth of it: what is smaller is not worth one. */
const WORTH_AN_OBJECT_BYTES = 1_024;

export interface KeptBy {
  readonly broker: Pick<Broker, "objects">;
  readonly ref: RunRef;
  readonly signal: AbortSignal;
}

/**
 * What an event holds of a call's result: one that is large becomes an object. The tool has done its work,
 * so NATS away is waited for until the signal aborts.
 */
export async function keptResult(
  { broker, ref, signal }: KeptBy,
  result: unknown,
  limit: number = MAX_INLINE_BYTES,
): Promise<unknown> {
  for (;;) {
    try {
      return await offload(broker.objects, ref, result, limit);
    } catch (error) {
      if (!(error instanceof BrokerUnavailable)) throw error;
      signal.throwIfAborted();
      // On a closed connection it is refused at once: without a pause no timer would ever fire.
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/**
 * Of events that answer a command: the results that clients have reported. One message is to hold them all:
 * half an answer, which is what a worker's death between two messages would leave, counts as the answer.
 * So where they are too much together, the largest become objects too.
 */
export async function keptResults(by: KeptBy, events: readonly NewEvent[]): Promise<NewEvent[]> {
  const kept = await Promise.all(events.map((event) => withKept(by, event, MAX_INLINE_BYTES)));
  if (kept.length === 1) return kept;
  let over = kept.reduce((sum, event) => sum + sizeOf(event), 0) - MAX_BATCH_BYTES;
  const largestFirst = [...kept.entries()].sort(([, a], [, b]) => sizeOf(b) - sizeOf(a));
  for (const [index, event] of largestFirst) {
    if (over <= 0) break;
    const smaller = await withKept(by, event, WORTH_AN_OBJECT_BYTES);
    over -= sizeOf(event) - sizeOf(smaller);
    kept[index] = smaller;
  }
  return kept;
}

async function withKept(by: KeptBy, event: NewEvent, limit: number): Promise<NewEvent> {
  if (event.type !== "tool_call.completed") return event;
  const result = (await keptResult(by, event.payload.result, limit)) ?? null;
  return { ...event, payload: { ...event.payload, result } };
}

function sizeOf(event: NewEvent): number {
  return Buffer.byteLength(JSON.stringify(event)) + ENVELOPE_BYTES;
}
