import { type DurableEvent, MAX_BATCH_BYTES, MAX_BATCH_EVENTS } from "@throughline/protocol";

/** Lines that were appended together: one message holds them all if a message can. */
export interface Group {
  readonly lines: number;
  /** Newlines between them included. */
  readonly bytes: number;
}

/** One event as a line of a message body, waiting for its append. */
export interface Line {
  readonly event: DurableEvent;
  readonly seq: number;
  readonly bytes: Uint8Array;
  readonly group: Group | undefined;
  /** COMMANDS sequence that this event applies; 0 for none. */
  readonly cmd: number;
  readonly barrier: boolean;
  /** A checkpoint: deltas sent before it are settled by it. */
  readonly settles: boolean;
  readonly end: boolean;
  readonly stored: (at: { seq: number; streamSeq: number }) => void;
  readonly failed: (error: Error) => void;
}

export interface Batch {
  readonly lines: readonly Line[];
  readonly body: Uint8Array;
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly cmd: number;
  readonly barrier: number;
  readonly settled: number;
  readonly end: boolean;
}

const NEWLINE = 0x0a;

/**
 * Takes the next message's lines off the front of the queue: as many as fit, at least one. A group is
 * begun only if all of it fits, unless no message could hold it.
 */
export function takeBatch(queue: Line[], cmdBefore: number): Batch {
  let count = 0;
  let bytes = 0;
  let inside: Group | undefined;
  for (const { bytes: own, group } of queue) {
    const gap = count > 0 ? 1 : 0;
    const needed =
      group !== undefined && group !== inside ? group : { lines: 1, bytes: own.byteLength };
    const fits =
      count + needed.lines <= MAX_BATCH_EVENTS && bytes + gap + needed.bytes <= MAX_BATCH_BYTES;
    if (count > 0 && !fits) break;
    inside = group;
    bytes += gap + own.byteLength;
    count += 1;
  }
  const lines = queue.splice(0, count);
  const body = new Uint8Array(bytes);
  let at = 0;
  let cmd = cmdBefore;
  let barrier = 0;
  let settled = 0;
  let end = false;
  for (const line of lines) {
    if (at > 0) {
      body[at] = NEWLINE;
      at += 1;
    }
    body.set(line.bytes, at);
    at += line.bytes.byteLength;
    cmd = Math.max(cmd, line.cmd);
    if (line.barrier) barrier = line.seq;
    if (line.settles) settled = line.seq;
    end ||= line.end;
  }
  return {
    lines,
    body,
    firstSeq: lines[0]?.seq ?? 0,
    lastSeq: lines.at(-1)?.seq ?? 0,
    cmd,
    barrier,
    settled,
    end,
  };
}
