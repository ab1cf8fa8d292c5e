/** What another run of the session came to. */
import { type Broker, BrokerUnavailable, type RunRef } from "@throughline/broker";
import { HoleError, initialRunState, reduce, type RunState } from "@throughline/protocol";
import { durableEventSchema, runStateSchema } from "@throughline/protocol/schemas";

export type FinishedStatus = "completed" | "failed" | "cancelled";

export interface FinishedRun {
  readonly state: RunState & { readonly status: FinishedStatus };
  /** Of its last event: a session's runs lie in one stream, so this orders them. */
  readonly streamSeq: number;
}

/**
 * Undefined while the run goes on, and once too little of it is kept. Its last snapshot says it, and is
 * kept longer than its events; only of a run that has ended just now the log is read.
 * Rejects with BrokerUnavailable.
 */
export async function finishedRun(
  broker: Pick<Broker, "snapshots" | "events">,
  ref: RunRef,
): Promise<FinishedRun | undefined> {
  const snapshot = await snapshotOf(broker, ref);
  if (snapshot && isFinished(snapshot.state)) {
    return { state: snapshot.state, streamSeq: snapshot.streamSeq };
  }
  const last = await broker.events.last({ kind: "run", ...ref }, "leader");
  if (!last?.end) return undefined;
  const state = await reduceAfter(broker, ref, snapshot, last.streamSeq);
  return state && isFinished(state) ? { state, streamSeq: last.streamSeq } : undefined;
}

interface Seen {
  readonly state: RunState;
  readonly streamSeq: number;
}

/** A snapshot of another version that does not fit counts as none: the log says it too. */
async function snapshotOf(
  broker: Pick<Broker, "snapshots">,
  ref: RunRef,
): Promise<Seen | undefined> {
  const snapshot = await broker.snapshots.read(ref, "replica");
  const parsed = runStateSchema.safeParse(snapshot?.state);
  return snapshot && parsed.success
    ? { state: parsed.data, streamSeq: snapshot.streamSeq }
    : undefined;
}

async function reduceAfter(
  broker: Pick<Broker, "events">,
  ref: RunRef,
  snapshot: Seen | undefined,
  upTo: number,
): Promise<RunState | undefined> {
  let state: RunState = snapshot?.state ?? initialRunState(ref.run);
  let after = snapshot?.streamSeq ?? 0;
  try {
    for (;;) {
      const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo });
      for (const message of page.messages) {
        for (const line of Buffer.from(message.body).toString("utf8").split("\n")) {
          const event = durableEventSchema.safeParse(JSON.parse(line));
          // Of a newer version: it has a place in the order, and no more.
          if (event.success) state = reduce(state, event.data);
          else state = { ...state, seq: state.seq + 1 };
        }
        after = message.streamSeq;
      }
      if (page.end || after >= upTo) return state;
    }
  } catch (error) {
    // Its beginning has expired.
    if (error instanceof HoleError) return undefined;
    throw error;
  }
}

export function isFinished(state: RunState): state is FinishedRun["state"] {
  const { status } = state;
  return status === "completed" || status === "failed" || status === "cancelled";
}

const RETRY_MS = 200;

/** Waits while NATS is away, until `signal` aborts. Rejects with its reason, or as `read` does for other reasons. */
export async function patiently<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    signal.throwIfAborted();
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof BrokerUnavailable)) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
