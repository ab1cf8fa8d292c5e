import { LogCorrupt } from "./errors.ts";
import type { HeaderFields } from "./header-text.ts";
import { runOfSubject } from "./subjects.ts";

/** Headers of our own on stored and ephemeral messages; SUBJECTS.md says what each means. */
export const H = {
  seq: "Tl-Seq",
  last: "Tl-Last",
  prev: "Tl-Prev",
  attempt: "Tl-Attempt",
  writer: "Tl-Writer",
  worker: "Tl-Worker",
  epoch: "Tl-Epoch",
  cmd: "Tl-Cmd",
  barrier: "Tl-Barrier",
  settled: "Tl-Settled",
  end: "Tl-End",
  after: "Tl-After",
  hash: "Tl-Hash",
  user: "Tl-User",
  command: "Tl-Command",
  deadline: "Tl-Deadline",
  at: "Tl-At",
  bytes: "Tl-Bytes",
  sha256: "Tl-Sha256",
  media: "Tl-Media-Type",
  upload: "Tl-Upload",
  chunk: "Tl-Chunk",
  chunks: "Tl-Chunks",
  first: "Tl-First",
  trace: "traceparent",
} as const;

/** Headers of NATS (ADR-8, ADR-31) that we read or set. */
export const N = {
  expectedLastSubject: "Nats-Expected-Last-Subject-Sequence",
  expectedLastFilter: "Nats-Expected-Last-Subject-Sequence-Subject",
  msgId: "Nats-Msg-Id",
  sequence: "Nats-Sequence",
  subject: "Nats-Subject",
  lastSequence: "Nats-Last-Sequence",
  numPending: "Nats-Num-Pending",
} as const;

/** One stored message of a run's event log: NDJSON, one event a line, `lastSeq - firstSeq + 1` lines. */
export interface LogMessage {
  readonly run: string;
  /** Position in the shard's stream. */
  readonly streamSeq: number;
  /** Stream sequence of the run's previous message on whichever subject; 0 for the first. */
  readonly prev: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly attempt: number;
  readonly writer: string;
  readonly worker: string;
  readonly epoch: string;
  /** COMMANDS sequence applied through. */
  readonly cmd: number;
  /** seq of the last event in the message that voids earlier deltas; 0 for none. */
  readonly barrier: number;
  /** seq of the last checkpoint in the message: deltas sent before it are settled; 0 for none. */
  readonly settled: number;
  /** The message holds the run's terminal event. */
  readonly end: boolean;
  /** `q` is the run's first event and job. */
  readonly lane: "q" | "e";
  readonly body: Uint8Array;
}

function whole(headers: HeaderFields, name: string, otherwise?: number): number {
  const text = headers.get(name);
  if (text === "" && otherwise !== undefined) return otherwise;
  const value = Number(text);
  if (text === "" || !Number.isSafeInteger(value) || value < 0) {
    throw new LogCorrupt(`header ${name} is ${JSON.stringify(text)}, a whole number is wanted`);
  }
  return value;
}

/** Reads a message of EVENTS (stored or live copy). Throws LogCorrupt on headers no writer of ours makes. */
export function logMessage(
  subject: string,
  streamSeq: number,
  headers: HeaderFields,
  body: Uint8Array,
): LogMessage {
  return {
    run: runOfSubject(subject),
    streamSeq,
    prev: whole(headers, H.prev),
    firstSeq: whole(headers, H.seq),
    lastSeq: whole(headers, H.last),
    attempt: whole(headers, H.attempt, 0),
    writer: headers.get(H.writer),
    worker: headers.get(H.worker),
    epoch: headers.get(H.epoch),
    cmd: whole(headers, H.cmd, 0),
    barrier: whole(headers, H.barrier, 0),
    settled: whole(headers, H.settled, 0),
    end: headers.get(H.end) !== "",
    lane: headers.get(H.prev) === "0" ? "q" : "e",
    body,
  };
}

export function sequenceOf(headers: HeaderFields): number {
  return whole(headers, N.sequence);
}

export function lastSequenceOf(headers: HeaderFields): number {
  return whole(headers, N.lastSequence, 0);
}
