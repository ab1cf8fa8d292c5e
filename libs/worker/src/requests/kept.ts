/** Large results, on their way into the log. */
import { type Broker, BrokerUnavailable, offload, type RunRef } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";

const RETRY_MS = 100;

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
): Promise<unknown> {
  for (;;) {
    try {
      return await offload(broker.objects, ref, result);
    } catch (error) {
      if (!(error instanceof BrokerUnavailable)) throw error;
      signal.throwIfAborted();
      // On a closed connection it is refused at once: without a pause no timer would ever fire.
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Of events that answer a command: the results that clients have reported. */
export function keptResults(by: KeptBy, events: readonly NewEvent[]): Promise<NewEvent[]> {
  return Promise.all(
    events.map(async (event) => {
      if (event.type !== "tool_call.completed") return event;
      const result = (await keptResult(by, event.payload.result)) ?? null;
      return { ...event, payload: { ...event.payload, result } };
    }),
  );
}
