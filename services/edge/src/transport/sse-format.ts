/**
 * Frames as messages of an event stream (HTML, "Server-sent events"): `id: <cursor>` and `data: <frame>`.
 * Frames are JSON without line breaks, so each is one line of data; none is parsed.
 */

const NEWLINE = Buffer.from("\n");
const NEWLINES = Buffer.from("\n\n");
const ID = Buffer.from("id: ");
const DATA = Buffer.from("data: ");
const CURSOR_MEMBER = Buffer.from(',"cursor":"');
const QUOTE = 0x22;
const CLOSING_BRACE = 0x7d;

/** A frame that the hub has made: an event with its cursor as its last member, or a delta, which has none. */
export function eventMessage(frame: Uint8Array): Buffer {
  const cursor = lastCursor(frame);
  return cursor === undefined
    ? Buffer.concat([DATA, frame, NEWLINES])
    : Buffer.concat([ID, cursor, NEWLINE, DATA, frame, NEWLINES]);
}

/** A control frame. `id`: what the client is to come back with, if it is told so by this. */
export function controlMessage(frame: string, id: string | undefined): Buffer {
  return Buffer.from(id === undefined ? `data: ${frame}\n\n` : `id: ${id}\ndata: ${frame}\n\n`);
}

/** Moves the client's Last-Event-ID and shows it nothing: a message without data is not dispatched. */
export function placeMessage(cursor: string): Buffer {
  return Buffer.from(`id: ${cursor}\n\n`);
}

/** Keeps what lies between from closing a connection that looks idle. */
export const COMMENT: Buffer = Buffer.from(":\n\n");

/** The first bytes: 2 KiB of comment get through whatever collects a little before it passes anything on. */
export function opening(retryMs: number): Buffer {
  return Buffer.from(`:${" ".repeat(2_048)}\nretry: ${retryMs}\n\n`);
}

export function retryMessage(retryMs: number): Buffer {
  return Buffer.from(`retry: ${retryMs}\n\n`);
}

/** The text of a `cursor` that is the object's last member, by its bytes from the end. */
function lastCursor(frame: Uint8Array): Uint8Array | undefined {
  const end = frame.byteLength - 2;
  if (frame[end + 1] !== CLOSING_BRACE || frame[end] !== QUOTE) return undefined;
  const begin = frame.lastIndexOf(QUOTE, end - 1) + 1;
  const member = begin - CURSOR_MEMBER.byteLength;
  if (member < 0) return undefined;
  for (let i = 0; i < CURSOR_MEMBER.byteLength; i += 1) {
    if (frame[member + i] !== CURSOR_MEMBER[i]) return undefined;
  }
  return frame.subarray(begin, end);
}
