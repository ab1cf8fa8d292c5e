/** What a frame is, by its first bytes: parsing JSON would make the viewers the bottleneck. */

export type FrameKind = "durable" | "delta" | "other";

/** Every envelope begins so; the type follows. */
const PREFIX = '{"type":"'.length;
const LETTER = {
  c: "c".charCodeAt(0),
  d: "d".charCodeAt(0),
  m: "m".charCodeAt(0),
  o: "o".charCodeAt(0),
  u: "u".charCodeAt(0),
} as const;

/**
 * Sorts what the bench's writers emit: `custom` and `model.chunk` are durable, `model.delta` is a
 * delta; all else (control frames, `run.queued`) is other. No control frame begins with cu or mo.
 */
export function kindOf(data: Uint8Array, start: number): FrameKind {
  const at = start + PREFIX;
  if (data[at] === LETTER.c && data[at + 1] === LETTER.u) return "durable";
  if (data[at] !== LETTER.m || data[at + 1] !== LETTER.o) return "other";
  const letter = data[at + "model.".length];
  if (letter === LETTER.d) return "delta";
  return letter === LETTER.c ? "durable" : "other";
}
