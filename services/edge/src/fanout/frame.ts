import type { LogMessage } from "@throughline/broker";
import { cursorTag, formatCursor } from "@throughline/protocol";
import type { Slab } from "./slab.ts";

/** One stored message, ready to be sent: its events as frames with their cursors. */
export interface Entry {
  readonly run: string;
  readonly streamSeq: number;
  readonly prev: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly epoch: string;
  /** The run's part of its cursors. */
  readonly tag: string;
  readonly attempt: number;
  readonly barrier: number;
  readonly settled: number;
  readonly end: boolean;
  /** `frames[i]` is the event with seq `firstSeq + i`. */
  readonly frames: readonly Uint8Array[];
  /** What the entry costs in memory, overhead included. */
  readonly bytes: number;
}

/** The marks of the runs in one page. */
export class RunMarks {
  readonly #marks: Map<string, RunMark> = new Map();

  of(m: { readonly run: string; readonly epoch: string }): RunMark {
    const known = this.#marks.get(m.run);
    // A run made anew in the same log is another one.
    if (known?.epoch === m.epoch) return known;
    const mark = { run: m.run, epoch: m.epoch, tag: cursorTag(m.run, m.epoch) };
    this.#marks.set(m.run, mark);
    return mark;
  }
}

/** A message that is not what its headers say. The hub fails loudly, it does not guess. */
export class FrameFault extends Error {
  override readonly name = "FrameFault";
}

const NEWLINE = 0x0a;
const BRACE = 0x7d;
/** Heap that an entry and each view on its memory take, measured on V8; part of the byte budget. */
const ENTRY_OVERHEAD = 240;
const FRAME_OVERHEAD = 112;

/** What all of a run's entries share. */
export interface RunMark {
  readonly run: string;
  readonly epoch: string;
  readonly tag: string;
}

/**
 * Splits a message's NDJSON body at newlines and splices each event's cursor in before its
 * last brace. No event is parsed. Throws FrameFault where lines and headers disagree.
 */
export function frameMessage(m: LogMessage, mark: RunMark, slab: Slab): Entry {
  const { run, epoch, tag } = mark;
  const frames = m.firstSeq === m.lastSeq ? [frameWhole(m, tag, slab)] : frameLines(m, tag, slab);
  let bytes = ENTRY_OVERHEAD;
  for (const frame of frames) bytes += frame.byteLength + FRAME_OVERHEAD;
  return {
    // Not the message's own: those are cut from its subject and headers, and would keep these in memory.
    run,
    epoch,
    tag,
    streamSeq: m.streamSeq,
    prev: m.prev,
    firstSeq: m.firstSeq,
    lastSeq: m.lastSeq,
    attempt: m.attempt,
    barrier: m.barrier,
    settled: m.settled,
    end: m.end,
    frames,
    bytes,
  };
}

/** What replaces an event's last brace. */
function ending(cursor: string): string {
  return `,"cursor":"${cursor}"}`;
}

function frameWhole(m: LogMessage, tag: string, slab: Slab): Uint8Array {
  const { body } = m;
  if (body.indexOf(NEWLINE) >= 0) throw fault(m, "has more than its one line");
  return spliced(
    m,
    body,
    ending(formatCursor({ seq: m.firstSeq, streamSeq: m.streamSeq, tag })),
    slab,
  );
}

function frameLines(m: LogMessage, tag: string, slab: Slab): Uint8Array[] {
  const { body } = m;
  const frames: Uint8Array[] = [];
  let start = 0;
  for (let seq = m.firstSeq; seq <= m.lastSeq; seq += 1) {
    if (start > body.byteLength) throw fault(m, `has ${frames.length} lines`);
    const newline = body.indexOf(NEWLINE, start);
    const end = newline < 0 ? body.byteLength : newline;
    const cursor = formatCursor({ seq, streamSeq: m.streamSeq, tag });
    frames.push(spliced(m, body.subarray(start, end), ending(cursor), slab));
    start = end + 1;
  }
  if (start <= body.byteLength) throw fault(m, "has more lines than that");
  return frames;
}

function spliced(m: LogMessage, line: Uint8Array, suffix: string, slab: Slab): Uint8Array {
  const kept = line.byteLength - 1;
  if (kept < 2 || line[kept] !== BRACE) throw fault(m, "has a line that is no JSON object");
  const frame = slab.take(kept + suffix.length);
  // The last brace is copied too and then written over: cheaper than a view that ends before it.
  frame.set(line, 0);
  frame.write(suffix, kept, suffix.length, "latin1");
  return frame;
}

/**
 * The entry's frames under another cursor. A repaired message on a session's hub is older in
 * the stream than what was delivered already, and a client's session cursor never goes back.
 */
export function restamped(entry: Entry, cursor: string): Uint8Array[] {
  return entry.frames.map((frame, i) => {
    const own = formatCursor({
      seq: entry.firstSeq + i,
      streamSeq: entry.streamSeq,
      tag: entry.tag,
    });
    const kept = frame.byteLength - ending(own).length;
    return Buffer.concat([frame.subarray(0, kept), Buffer.from(ending(cursor), "latin1")]);
  });
}

/** Lines of an ephemeral message: sent as they are, since they have no cursor. */
export function splitLines(body: Uint8Array): Uint8Array[] {
  if (body.indexOf(NEWLINE) < 0) return body.byteLength === 0 ? [] : [body];
  const lines: Uint8Array[] = [];
  let start = 0;
  while (start < body.byteLength) {
    const newline = body.indexOf(NEWLINE, start);
    const end = newline < 0 ? body.byteLength : newline;
    if (end > start) lines.push(body.subarray(start, end));
    start = end + 1;
  }
  return lines;
}

function fault(m: LogMessage, what: string): FrameFault {
  return new FrameFault(
    `run ${m.run}: the message at ${m.streamSeq} with seq ${m.firstSeq}–${m.lastSeq} ${what}`,
  );
}
