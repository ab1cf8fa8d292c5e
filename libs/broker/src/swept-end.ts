/** How the sweep ends a run: as its worker would have, from the run's whole log. */
import {
  type Closing,
  closingEvents,
  FAILURE_CODES,
  type FailureCode,
  initialRunState,
  isApplied,
  type NewEvent,
  reduce,
  type RunState,
} from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import type { RunPosition } from "./append.ts";
import type { Broker } from "./broker.ts";
import type { CommandLog } from "./command-log.ts";
import { FencedError, LogCorrupt } from "./errors.ts";
import type { RunRef } from "./ids.ts";
import { parseQueued, recover } from "./recover.ts";
import { openRunWriter, type RunWriter } from "./run-writer.ts";
import type { Job, Standing } from "./standing.ts";

export interface SweptRun extends Job {
  readonly ref: RunRef;
}

export interface EndingSweep {
  readonly broker: Broker;
  /** Id of the worker whose sweep this is. */
  readonly worker: string;
  readonly warn: (text: string, cause?: unknown) => void;
}

/** A stored `run.cancel` that nothing in the log answers. */
interface PendingCancel {
  readonly kind: "cancelled";
  readonly id: string;
  readonly user: string;
  readonly reason: string | undefined;
  readonly streamSeq: number;
}

type SweptEnd = PendingCancel | { readonly kind: "failed"; readonly code: FailureCode };

/** What there is to go on from. */
interface Begin {
  /** Undefined where the log cannot be made out: the run is ended all the same (INV4). */
  readonly state: RunState | undefined;
  readonly position: RunPosition;
  readonly attempt: number;
}

const APPEND_MS = 20_000;

/**
 * Closes what is open and appends the terminal, in one message, behind what the leader has: the
 * cancellation if one is stored and unanswered (an accepted command is not overridden), else a failure with
 * `code`; without `code` a run that nobody cancelled is left alone.
 *
 * "overtaken": somebody else has written meanwhile. Rejects with BrokerUnavailable or WriterFailed.
 */
export async function endRun(
  by: EndingSweep,
  run: SweptRun,
  standing: Standing,
  code?: FailureCode,
): Promise<"ended" | "overtaken" | "left alone"> {
  const { broker } = by;
  const begin = await beginOf(by, run, standing);
  if (begin === "ended") return "overtaken";
  const { position } = begin;
  const cancel = await pendingCancel(broker.commands, run.ref, position.cmd, begin.state);
  const end = cancel ?? (code === undefined ? undefined : { kind: "failed" as const, code });
  if (!end) return "left alone";
  let { state } = begin;
  const attempt = begin.attempt + 1;
  const epoch = standing.last?.epoch ?? run.epoch;
  const writer = openRunWriter(broker, {
    ref: run.ref,
    epoch,
    attempt,
    // Not the worker's own name: its queue must see that one of its runs was ended by another.
    worker: `sweep:${by.worker}`,
    patienceMs: APPEND_MS,
    position,
    onStored: (events) => {
      state = state && events.reduce(reduce, state);
    },
  });
  try {
    await writer.appendAll(
      endingEvents(begin.state, end),
      end.kind === "cancelled" ? { cmd: end.streamSeq } : {},
    );
  } catch (error) {
    if (error instanceof FencedError) return "overtaken";
    throw error;
  } finally {
    writer.discard();
  }
  if (state) await keep(by, run.ref, state, { writer, attempt, epoch });
  return "ended";
}

async function beginOf(
  by: EndingSweep,
  run: SweptRun,
  standing: Standing,
): Promise<Begin | "ended"> {
  const { ref, streamSeq } = run;
  const { job, last } = standing;
  const ours = job?.streamSeq === streamSeq && job.epoch === run.epoch ? job : undefined;
  try {
    const queued = ours && parseQueued(ours.body, `the job of ${ref.run}`);
    if (last) {
      const from = { streamSeq, epoch: run.epoch, ...(queued ? { event: queued } : {}) };
      return await recover(by.broker, by.broker.snapshots, ref, from);
    }
    const position = { seq: 1, streamSeq, eSeq: 0, cmd: 0 };
    const state = queued && reduce(initialRunState(ref.run), queued);
    return { state, position, attempt: 0 };
  } catch (error) {
    if (!(error instanceof LogCorrupt)) throw error;
    by.warn(`${ref.run} is ended without closing what is open in it`, error);
    const { lastSeq: seq = 1, streamSeq: at = streamSeq, cmd = 0 } = last ?? {};
    const position = { seq, streamSeq: at, eSeq: last ? at : 0, cmd };
    return { state: undefined, position, attempt: last?.attempt ?? 0 };
  }
}

async function pendingCancel(
  commands: Pick<CommandLog, "stored">,
  ref: RunRef,
  after: number,
  state: RunState | undefined,
): Promise<PendingCancel | undefined> {
  for await (const stored of commands.stored(ref, after)) {
    const parsed = parseCommand(stored.command);
    if (!parsed.ok || parsed.command.type !== "run.cancel") continue;
    const { id, payload } = parsed.command;
    // The edge always names one; an event that names none would not be legal.
    const user = stored.user === "" ? "unknown" : stored.user;
    if (state && isApplied(state, id, user)) continue;
    const { streamSeq } = stored;
    return { kind: "cancelled", id, user, reason: payload.reason, streamSeq };
  }
  return undefined;
}

/** Pure. */
function endingEvents(state: RunState | undefined, end: SweptEnd): NewEvent[] {
  const [closing, terminal] = end.kind === "cancelled" ? cancelled(end) : failed(end.code);
  return [...(state ? closingEvents(state, closing) : []), terminal];
}

function cancelled({ id, user, reason }: PendingCancel): [Closing, NewEvent] {
  const terminal: NewEvent = {
    type: "run.cancelled",
    reply_to: id,
    reply_by: user,
    payload: { by: user, ...(reason === undefined ? {} : { reason }) },
  };
  return [{ kind: "cancelled", by: user }, terminal];
}

function failed(code: FailureCode): [Closing, NewEvent] {
  const { summary: message, retryable } = FAILURE_CODES[code];
  const failure = { code, message, retryable };
  return [
    { kind: "failed", failure },
    { type: "run.failed", payload: failure },
  ];
}

/** For those who look the run up later. The log has it all, so what cannot be kept ends nothing. */
async function keep(
  by: EndingSweep,
  ref: RunRef,
  state: RunState,
  wrote: { readonly writer: RunWriter; readonly attempt: number; readonly epoch: string },
): Promise<void> {
  const { writer, attempt, epoch } = wrote;
  const { seq, streamSeq, cmd } = writer.stored;
  const { agent, by: user = "unknown", queued_at = 0, ended_at, retry_of, status } = state;
  try {
    await by.broker.snapshots.write(ref, {
      state,
      seq,
      streamSeq,
      attempt,
      writer: writer.writer,
      epoch,
      cmd,
    });
    if (agent === undefined) return;
    await by.broker.runs.put({ ...ref, agent, status, by: user, queued_at, ended_at, retry_of });
  } catch (error) {
    by.warn(`the end of ${ref.run} is not in its snapshot or in its session's list`, error);
  }
}
