/** The time at which an event was made, carried in its text: `@<microseconds>@`. */

const STAMP = /@(\d+)@/g;

/** `micros` as of `sharedMicros`, to the tenth. */
export function stamp(micros: number): string {
  return `@${Math.round(micros * 10)}@`;
}

/** All stamps of a frame or message, in microseconds. */
export function stampOf(text: string): number[] {
  return Array.from(text.matchAll(STAMP), (match) => Number(match[1]) / 10);
}
