import type { NatsConnection } from "@nats-io/nats-core";
import { H } from "./headers.ts";
import { leaderReadPatiently } from "./leader-read.ts";

export interface Append {
  readonly writer: string;
  readonly lastSeq: number;
  /** Stream sequence of the subject's last message that the append continues; 0 for none. */
  readonly expected: number;
  /** The run's job, behind which the first append comes. */
  readonly job: { readonly subject: string; readonly streamSeq: number };
  /** Wall clock, ms: until then the leader is asked again and again. */
  readonly giveUpAt: number;
}

export type Fate =
  | { readonly kind: "stored"; readonly streamSeq: number }
  /** Not stored: send the same message again, with this expectation. */
  | { readonly kind: "absent"; readonly expected: number }
  | { readonly kind: "fenced"; readonly worker: string; readonly attempt: string }
  | { readonly kind: "unknown"; readonly cause: unknown };

/** Between a refusal and the next try, in ms: an append in flight is decided within it. */
const PAUSE_MS = 20;

/**
 * What became of an append that was refused or not answered (the settle rule, ARCHITECTURE §3):
 * the subject's last message decides, read from the leader. A replica's answer is stale on
 * 4–14 % of reads right after an ack, and would make a stored append be sent again or a live
 * writer stop.
 */
export async function settle(
  nc: NatsConnection,
  stream: string,
  subject: string,
  append: Append,
): Promise<Fate> {
  let last;
  try {
    const patience = Math.max(0, append.giveUpAt - Date.now());
    last = await leaderReadPatiently(nc, stream, { last_by_subj: subject }, patience);
  } catch (cause) {
    return { kind: "unknown", cause };
  }
  if (!last) return append.expected === 0 ? unbegun(nc, stream, append) : pausedAbsent(append, 0);
  if (last.headers.get(H.writer) === append.writer) {
    if (last.headers.get(H.last) === String(append.lastSeq)) {
      return { kind: "stored", streamSeq: last.streamSeq };
    }
    return pausedAbsent(append, last.streamSeq);
  }
  if (last.streamSeq === append.expected) return pausedAbsent(append, append.expected);
  return {
    kind: "fenced",
    worker: last.headers.get(H.worker),
    attempt: last.headers.get(H.attempt),
  };
}

/** Nothing is on the subject yet. Ours to begin only while the job that we were given is the run's. */
async function unbegun(nc: NatsConnection, stream: string, append: Append): Promise<Fate> {
  const { subject, streamSeq } = append.job;
  try {
    const patience = Math.max(0, append.giveUpAt - Date.now());
    const job = await leaderReadPatiently(nc, stream, { last_by_subj: subject }, patience);
    if (job?.streamSeq === streamSeq) return await pausedAbsent(append, 0);
  } catch (cause) {
    return { kind: "unknown", cause };
  }
  return { kind: "fenced", worker: "another incarnation's", attempt: "none" };
}

/** Not stored. All that was on the subject may have expired: then whoever appends first goes on. */
async function pausedAbsent(append: Append, expected: number): Promise<Fate> {
  if (Date.now() >= append.giveUpAt) {
    return { kind: "unknown", cause: new Error("NATS kept refusing the append") };
  }
  await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  return { kind: "absent", expected };
}
