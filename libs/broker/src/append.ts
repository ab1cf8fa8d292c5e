import type { NatsConnection } from "@nats-io/nats-core";
import type { Batch } from "./batch.ts";
import { FencedError, WriterFailed } from "./errors.ts";
import { H, N } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { isFatalRefusal, publishAcked } from "./publish.ts";
import { settle } from "./settle.ts";
import { eventSubject, streamName } from "./subjects.ts";

/** Where a run's log stands: what the next append continues. */
export interface RunPosition {
  /** Last stored seq. */
  readonly seq: number;
  /** Stream sequence of the run's last message, on whichever subject. */
  readonly streamSeq: number;
  /** Stream sequence of the last message on `.e`; 0 for none. The fence. */
  readonly eSeq: number;
  /** COMMANDS sequence applied through. */
  readonly cmd: number;
}

/** Whose log is appended to, and by which attempt. */
export interface AppendTarget {
  readonly ref: RunRef;
  readonly shard: number;
  readonly epoch: string;
  readonly attempt: number;
  readonly worker: string;
  readonly writer: string;
  /** How long the outcome may stay unknown, in ms. */
  readonly patienceMs: number;
}

const PUBLISH_MS = 3_000;

/**
 * Appends one message behind `at` and stays with it until its fate is known: its stream
 * sequence, or why nothing can be appended any more. Never rejects.
 */
export async function appendBatch(
  nc: NatsConnection,
  target: AppendTarget,
  at: RunPosition,
  batch: Batch,
): Promise<number | FencedError | WriterFailed> {
  const { ref, shard, attempt, writer, patienceMs } = target;
  const subject = eventSubject.e(ref, shard);
  const giveUpAt = Date.now() + patienceMs;
  let expected = at.eSeq;
  for (;;) {
    const outcome = await publishAcked(
      nc,
      subject,
      batch.body,
      fields(target, at, batch, expected),
      PUBLISH_MS,
    );
    if (outcome.kind === "stored") return outcome.streamSeq;
    if (outcome.kind === "refused" && isFatalRefusal(outcome.code)) {
      return new WriterFailed(
        `NATS does not take this append of ${ref.run}: ${outcome.description}`,
      );
    }
    const fate = await settle(nc, streamName.events(shard), subject, {
      writer,
      lastSeq: batch.lastSeq,
      expected,
      job: { subject: eventSubject.anyQ(ref, shard), streamSeq: at.streamSeq },
      giveUpAt,
    });
    switch (fate.kind) {
      case "stored":
        return fate.streamSeq;
      case "absent":
        expected = fate.expected;
        continue;
      case "fenced":
        return new FencedError(
          `${ref.run} belongs to attempt ${fate.attempt} of worker ${fate.worker}: ours (${attempt}) is over`,
        );
      case "unknown":
        return new WriterFailed(
          `the outcome of an append to ${ref.run} stayed unknown for ${patienceMs} ms`,
          { cause: fate.cause },
        );
    }
  }
}

function fields(
  target: AppendTarget,
  at: RunPosition,
  batch: Batch,
  expected: number,
): Record<string, string | number | undefined> {
  const { ref, shard } = target;
  // Before anything is on `.e` the job is the fence, on whichever subject (WRT10).
  const first = at.eSeq === 0;
  return {
    [N.expectedLastSubject]: first ? at.streamSeq : expected,
    [N.expectedLastFilter]: first ? eventSubject.anyOfRun(ref, shard) : undefined,
    [H.seq]: batch.firstSeq,
    [H.last]: batch.lastSeq,
    [H.prev]: at.streamSeq,
    [H.attempt]: target.attempt,
    [H.writer]: target.writer,
    [H.worker]: target.worker,
    [H.epoch]: target.epoch,
    [H.cmd]: batch.cmd || undefined,
    [H.barrier]: batch.barrier || undefined,
    [H.settled]: batch.settled || undefined,
    [H.end]: batch.end ? 1 : undefined,
  };
}
