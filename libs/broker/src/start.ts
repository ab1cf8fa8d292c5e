import { randomBytes } from "node:crypto";
import type { DurableEvent, EventPayload } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { BrokerUnavailable } from "./errors.ts";
import { H, N } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead } from "./leader-read.ts";
import { isFatalRefusal, publishAcked, REFUSED } from "./publish.ts";
import { eventSubject, snapshotSubject, streamName } from "./subjects.ts";

export interface StartRequest {
  readonly ref: RunRef;
  readonly agent: string;
  /** Who asked, as in the token. */
  readonly user: string;
  /** The idempotency key; the run's `reply_to`. */
  readonly commandId: string;
  /** Hash of the command's body: tells a retry from another command with the same id. */
  readonly hash: string;
  /** ms since the epoch. */
  readonly deadline: number;
  readonly payload: EventPayload<"run.queued">;
}

export type StartOutcome =
  | { readonly outcome: "stored"; readonly streamSeq: number; readonly epoch: string }
  | { readonly outcome: "duplicate"; readonly streamSeq: number; readonly epoch: string }
  /** The id was used with another body. */
  | { readonly outcome: "conflict" };

const PUBLISH_MS = 3_000;

/**
 * Stores `run.queued` with the expectation that the run has no event at all, on whichever subject:
 * a retry through another node, with another agent, or after `q` has expired, finds what is there.
 * Rejects with BrokerUnavailable when the outcome could not be learnt; the same call may be made again.
 */
export async function startRun(broker: Broker, request: StartRequest): Promise<StartOutcome> {
  const { ref } = request;
  broker.assertUp();
  const shard = broker.shardOf(ref.session);
  // Snapshots outlive events: a start that comes again after those have expired must not begin anew.
  const old = await broker.reader.read(streamName.snapshots(shard), {
    last_by_subj: snapshotSubject(ref, shard),
  });
  const epoch = randomBytes(6).toString("base64url");
  if (!old.messages[0]) {
    const outcome = await publishAcked(
      broker.nc,
      eventSubject.q(ref, shard, request.agent),
      queuedBody(request),
      {
        [N.expectedLastSubject]: 0,
        [N.expectedLastFilter]: eventSubject.anyOfRun(ref, shard),
        [H.seq]: 1,
        [H.last]: 1,
        [H.prev]: 0,
        [H.epoch]: epoch,
        [H.hash]: request.hash,
        [H.user]: encodeURIComponent(request.user),
        [H.command]: request.commandId,
        [H.deadline]: request.deadline,
      },
      PUBLISH_MS,
    );
    if (outcome.kind === "stored")
      return { outcome: "stored", streamSeq: outcome.streamSeq, epoch };
    const exists =
      outcome.kind === "refused" &&
      (outcome.code === REFUSED.wrongLastSequence || outcome.code === REFUSED.appendInFlight);
    if (!exists) {
      const what = outcome.kind === "refused" ? outcome.description : "no answer";
      const fatal = outcome.kind === "refused" && isFatalRefusal(outcome.code);
      throw fatal
        ? new RangeError(`NATS does not take this start: ${what}`)
        : new BrokerUnavailable(`the start of ${ref.run} was not confirmed: ${what}`, {
            cause: outcome,
          });
    }
  }
  return sameOrOther(broker, shard, request);
}

function queuedBody(request: StartRequest): Uint8Array {
  const event: DurableEvent<"run.queued"> = {
    type: "run.queued",
    session_id: request.ref.session,
    run_id: request.ref.run,
    seq: 1,
    event_id: `${request.ref.run}.1`,
    ts: Date.now(),
    reply_to: request.commandId,
    payload: request.payload,
  };
  return Buffer.from(JSON.stringify(event));
}

async function sameOrOther(
  broker: Broker,
  shard: number,
  request: StartRequest,
): Promise<StartOutcome> {
  const found = await leaderRead(broker.nc, streamName.events(shard), {
    last_by_subj: eventSubject.anyQ(request.ref, shard),
  });
  if (found) {
    if (found.headers.get(H.hash) !== request.hash) return { outcome: "conflict" };
    return {
      outcome: "duplicate",
      streamSeq: found.streamSeq,
      epoch: found.headers.get(H.epoch),
    };
  }
  // `q` has expired: the snapshot or the run's later events are what is left to compare with.
  const snapshot = await broker.snapshots.read(request.ref, "leader");
  if (snapshot) {
    if (agentOf(snapshot.state) !== request.agent) return { outcome: "conflict" };
    return { outcome: "duplicate", streamSeq: 0, epoch: snapshot.epoch };
  }
  const later = await leaderRead(broker.nc, streamName.events(shard), {
    last_by_subj: eventSubject.e(request.ref, shard),
  });
  if (later) {
    return { outcome: "duplicate", streamSeq: later.streamSeq, epoch: later.headers.get(H.epoch) };
  }
  throw new BrokerUnavailable(`the start of ${request.ref.run} is being decided elsewhere`);
}

function agentOf(state: unknown): unknown {
  return typeof state === "object" && state !== null && "agent" in state ? state.agent : undefined;
}
