import { MAX_BATCH_BYTES, MAX_BATCH_EVENTS } from "@throughline/protocol";

/** One event as a line of a message body, waiting for its append. */
export interface Line {
  readonly seq: number;
  readonly bytes: Uint8Array;
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

/** Takes the next message's lines off the front of the queue: as many as fit, at least one. */
export function takeBatch(queue: Line[], cmdBefore: number): Batch {
  let count = 0;
  let bytes = 0;
  for (const line of queue) {
    const more = bytes + line.bytes.byteLength + (count > 0 ? 1 : 0);
    if (count === MAX_BATCH_EVENTS || (count > 0 && more > MAX_BATCH_BYTES)) break;
    bytes = more;
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
