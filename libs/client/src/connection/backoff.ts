import type { Reconnect } from "@throughline/protocol";

export interface BackoffOptions {
  /** Milliseconds: the most that the first attempt waits. */
  baseMs: number;
  /** Milliseconds: the most that any attempt waits. */
  capMs: number;
}

/** A server that says it has too much to do is spared the first, short waits. */
const OVERLOAD_HEAD_START = 3;

/**
 * How long to wait before the next attempt, in milliseconds.
 *
 * Full jitter: uniform between 0 and a ceiling that doubles. When a node dies all its clients lose
 * their connection in the same millisecond, and anything less spread would bring them back as one wave.
 *
 * @param attempt failed attempts so far, from 0
 * @param random  in [0, 1)
 */
export function backoff(
  advice: Exclude<Reconnect, "never">,
  attempt: number,
  random: number,
  { baseMs, capMs }: BackoffOptions,
): number {
  const ceiling = (steps: number): number => Math.min(capMs, baseMs * 2 ** Math.min(steps, 30));
  if (advice !== "backoff") return random * ceiling(attempt);
  const least = Math.min(capMs, baseMs);
  return least + random * (ceiling(attempt + OVERLOAD_HEAD_START) - least);
}
