/*
 * Ids become tokens of NATS subjects, keys and file names. So there is one alphabet for all of them,
 * free of `.`, `*`, `>`, spaces and control characters, and it is checked at every boundary.
 */

/**
 * 1 to 64 characters of `A-Z a-z 0-9 _ -`. One word of that alphabet is not an id: `__proto__` as a
 * member's name is lost or does harm in most code that keeps things by id in an object.
 */
export const ID_PATTERN: RegExp = /^(?!__proto__$)[A-Za-z0-9_-]{1,64}$/;

/** What is wrong with a text that does not match. */
export const ID_RULE = "must be 1 to 64 characters of A-Z a-z 0-9 _ - (and not __proto__)";

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
