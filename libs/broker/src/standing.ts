import type { Broker } from "./broker.ts";
import { H, type LogMessage, logMessage } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead } from "./leader-read.ts";
import { eventSubject, streamName } from "./subjects.ts";

/** What the leader has of a run at one moment. */
export interface Standing {
  /** The run's job as stored; undefined once it has expired. */
  readonly job: (Job & { readonly body: Uint8Array }) | undefined;
  /** The last message after the job, if there is any. */
  readonly last: LogMessage | undefined;
}

/**
 * Both subjects are asked of the leader: a replica's "not there" may be stale. `agent`: the job's, where it
 * is known. Rejects with BrokerUnavailable.
 */
export async function readStanding(
  broker: Pick<Broker, "nc" | "shardOf">,
  ref: RunRef,
  agent?: string,
): Promise<Standing> {
  const shard = broker.shardOf(ref.session);
  const stream = streamName.events(shard);
  const [job, last] = await Promise.all([
    leaderRead(broker.nc, stream, {
      last_by_subj:
        agent === undefined ? eventSubject.anyQ(ref, shard) : eventSubject.q(ref, shard, agent),
    }),
    leaderRead(broker.nc, stream, { last_by_subj: eventSubject.e(ref, shard) }),
  ]);
  return {
    job: job && { streamSeq: job.streamSeq, epoch: job.headers.get(H.epoch), body: job.body },
    last: last && logMessage(last.subject, last.streamSeq, last.headers, last.body),
  };
}

/** A run's job, by where it is stored and of which incarnation it is. */
export interface Job {
  readonly streamSeq: number;
  readonly epoch: string;
}

export type StandingVerdict =
  /** Nobody has written to the run: it may be started. */
  | { readonly kind: "fresh" }
  /** Somebody wrote: the run is theirs unless they do not hold it any more. */
  | { readonly kind: "begun"; readonly last: LogMessage }
  /** The terminal is stored. */
  | { readonly kind: "ended" }
  /** The delivered job is not the one that is stored: it came from a process that slept past its expiry. */
  | { readonly kind: "stale" }
  /**
   * The log is another incarnation's: the job expired and was stored anew, or the stream was
   * deleted and made anew under a live writer. No claim is ever made, so no second writer comes
   * to the old log, and the new job's epoch never follows the old one's events. The sweep
   * ends the run at the deadline if its writer does not.
   */
  | { readonly kind: "foreign"; readonly last: LogMessage };

/** Pure: the log decides, not the delivery count. */
export function standingVerdict(job: Job, standing: Standing): StandingVerdict {
  const { last } = standing;
  if (last?.end) return { kind: "ended" };
  if (standing.job?.streamSeq !== job.streamSeq || standing.job.epoch !== job.epoch) {
    return { kind: "stale" };
  }
  if (!last) return { kind: "fresh" };
  if (last.epoch !== job.epoch) return { kind: "foreign", last };
  return { kind: "begun", last };
}
