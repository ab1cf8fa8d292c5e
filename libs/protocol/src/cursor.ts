/*
 * A cursor says where a reader is: `<seq>-<streamSeq>-<tag>`.
 *
 * `streamSeq` finds the message in one step, `seq` tells which line of it was the last one seen, and
 * `tag` tells whether it is still the same run on the same stream: a stream that was deleted and made
 * anew counts from 1 again, and its message at that number is a stranger's.
 */

/** A reader's place in a run. `seq` 0: nothing seen yet. */
export interface Cursor {
  /** `seq` of the last event seen. */
  readonly seq: number;
  /** Sequence, in the shard's stream, of the message that held it. */
  readonly streamSeq: number;
  /** {@link cursorTag} of the run. */
  readonly tag: string;
}

/** What a cursor looks like; that its numbers are safe integers is {@link parseCursor}'s to check. */
export const CURSOR_PATTERN: RegExp = /^(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})-([0-9a-z]{1,7})$/;

/** The text that clients keep and send back. */
export function formatCursor(cursor: Cursor): string {
  return `${cursor.seq}-${cursor.streamSeq}-${cursor.tag}`;
}

/** Reads a cursor; `undefined` for anything that {@link formatCursor} does not produce. */
export function parseCursor(text: unknown): Cursor | undefined {
  if (typeof text !== "string") return undefined;
  const match = CURSOR_PATTERN.exec(text);
  if (match === null) return undefined;
  const seq = Number(match[1]);
  const streamSeq = Number(match[2]);
  const tag = match[3];
  if (!Number.isSafeInteger(seq) || !Number.isSafeInteger(streamSeq) || tag === undefined)
    return undefined;
  return { seq, streamSeq, tag };
}

/**
 * Short hash of a run and its epoch (FNV-1a, 32 bits, base 36; 1 to 7 characters). It guards against
 * accidents, not against forgery: a cursor grants nothing, and every read is authorised by itself.
 */
export function cursorTag(runId: string, epoch: string): string {
  // The separator is outside the id alphabet, so ("ab", "c") and ("a", "bc") differ.
  const text = `${runId}.${epoch}`;
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    hash ^= text.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return (hash >>> 0).toString(36);
}
