import type { Cursor } from "@throughline/protocol";
import type { Position } from "./position.ts";

/** The first stored message at or behind a cursor's place. */
export interface Found {
  readonly streamSeq: number;
  readonly prev: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly tag: string;
}

/**
 * `resume`: nothing is missing between the cursor and what follows. `reset`: something may be,
 * so the client is told (`recovered: false`) and given a snapshot, or what is stored.
 */
export type Resumption =
  | { readonly kind: "resume"; readonly position: Position }
  | { readonly kind: "reset"; readonly reason: ResetReason };

export type ResetReason = "cursor_expired" | "cursor_invalid";

/**
 * Judges a cursor of a run. `tag` is the run's own, `found` the first message at or behind
 * `cursor.streamSeq`; for a cursor that has seen nothing, the first that is stored at all. Pure.
 */
export function resumeRun(cursor: Cursor, tag: string, found: Found | undefined): Resumption {
  if (cursor.tag !== tag) return reset("cursor_invalid");
  if (cursor.seq === 0) {
    // It claims to have seen nothing, from behind what is stored: no cursor of ours passes that over.
    if (found && found.streamSeq <= cursor.streamSeq) return reset("cursor_invalid");
    return resumeUnseen(cursor, found);
  }
  if (found === undefined) return reset("cursor_expired");
  if (found.streamSeq === cursor.streamSeq) return within(cursor, found);
  // Its own message is gone: no loss if the next event is still there.
  if (found.firstSeq === cursor.seq + 1) return whole(cursor.streamSeq);
  return reset(found.firstSeq > cursor.seq ? "cursor_expired" : "cursor_invalid");
}

/** Judges a cursor of a session. `origin` is the tag of cursors that have seen nothing. Pure. */
export function resumeSession(
  cursor: Cursor,
  origin: string,
  found: Found | undefined,
): Resumption {
  if (cursor.seq === 0) {
    return cursor.tag === origin ? resumeUnseen(cursor, found) : reset("cursor_invalid");
  }
  // Events of other runs may have been lost beside it: its own message must be there.
  if (found?.streamSeq !== cursor.streamSeq) return reset("cursor_expired");
  return found.tag === cursor.tag ? within(cursor, found) : reset("cursor_invalid");
}

/** Nothing was seen from `streamSeq` on: nothing is missing if what is found there follows on what was before. */
function resumeUnseen(cursor: Cursor, found: Found | undefined): Resumption {
  if (found && found.prev > cursor.streamSeq) return reset("cursor_expired");
  return whole(cursor.streamSeq);
}

function within(cursor: Cursor, own: Found): Resumption {
  if (cursor.seq < own.firstSeq || cursor.seq > own.lastSeq) return reset("cursor_invalid");
  const next = cursor.seq === own.lastSeq ? 0 : cursor.seq + 1;
  return { kind: "resume", position: { streamSeq: cursor.streamSeq, next } };
}

function whole(streamSeq: number): Resumption {
  return { kind: "resume", position: { streamSeq, next: 0 } };
}

function reset(reason: ResetReason): Resumption {
  return { kind: "reset", reason };
}
