/**
 * Where a reader of a hub stands in the log. `next` is 0 when the message at `streamSeq` is
 * delivered whole, else the `seq` of the next event in it (a message holds several).
 */
export interface Position {
  readonly streamSeq: number;
  readonly next: number;
}

/** The stream sequence after which this reader must be given messages. */
export function readAfter(position: Position): number {
  return position.next === 0 ? position.streamSeq : position.streamSeq - 1;
}
