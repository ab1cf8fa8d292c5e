/*
 * Ids become tokens of NATS subjects, keys and file names. So there is one alphabet for all of them,
 * free of `.`, `*`, `>`, spaces and control characters, and it is checked at every boundary.
 */

/** 1 to 64 characters of `A-Z a-z 0-9 _ -`. */
export const ID_PATTERN: RegExp = /^[A-Za-z0-9_-]{1,64}$/;

/** `<run_id>.<seq>`: names one durable event. */
export const EVENT_ID_PATTERN: RegExp = /^[A-Za-z0-9_-]{1,64}\.[1-9][0-9]{0,15}$/;

/** True for text that may stand wherever the protocol says "id". */
export function isId(text: unknown): text is string {
  return typeof text === "string" && ID_PATTERN.test(text);
}

/** The `event_id` of a run's durable event. */
export function eventId(runId: string, seq: number): string {
  return `${runId}.${seq}`;
}
