/** How long a provider asks to wait, in milliseconds, out of the headers of its refusal. Pure. */

/** `now`: ms since the epoch. Undefined where the provider does not say. */
export function retryAfterMs(headers: Headers, now: number): number | undefined {
  // OpenAI's own, finer than the standard's.
  const exact = milliseconds(headers.get("retry-after-ms"));
  if (exact !== undefined) return exact;
  return standard(headers.get("retry-after"), now) ?? limits(headers, now);
}

function milliseconds(text: string | null): number | undefined {
  return text !== null && /^\d+(\.\d+)?$/.test(text.trim()) ? Math.ceil(Number(text)) : undefined;
}

/** RFC 9110: seconds or a date. Some send fractions of seconds. A date that is past means now. */
function standard(text: string | null, now: number): number | undefined {
  if (text === null) return undefined;
  if (/^\d+(\.\d+)?$/.test(text.trim())) return Math.ceil(Number(text) * 1000);
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** Limits by name, of which that is waited for which is used up; the longest, since all must have room. */
function limits(headers: Headers, now: number): number | undefined {
  const waits: number[] = [];
  for (const of of ["-requests", "-tokens", ""]) {
    if (Number(headers.get(`x-ratelimit-remaining${of}`) ?? Number.NaN) > 0) continue;
    const wait = reset(headers.get(`x-ratelimit-reset${of}`), now);
    if (wait !== undefined) waits.push(wait);
  }
  return waits.length === 0 ? undefined : Math.max(...waits);
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** `6m0s`, `20ms` (OpenAI), seconds to go, or an epoch in seconds or milliseconds (OpenRouter). */
function reset(text: string | null, now: number): number | undefined {
  const value = text?.trim() ?? "";
  if (/^\d+(\.\d+)?$/.test(value)) {
    const number = Number(value);
    if (number > 1e11) return Math.max(0, Math.ceil(number - now));
    if (number > 1e8) return Math.max(0, Math.ceil(number * 1000 - now));
    return Math.ceil(number * 1000);
  }
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(value)) return undefined;
  let sum = 0;
  for (const [, number, unit] of value.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g))
    sum += Number(number) * (UNIT_MS[unit ?? ""] ?? 0);
  return Math.ceil(sum);
}
