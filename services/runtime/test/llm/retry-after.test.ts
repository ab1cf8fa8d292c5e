import { describe, expect, it } from "vitest";
import { retryAfterMs } from "../../src/llm/retry-after.ts";

const NOW = Date.parse("2026-12-01T00:00:00Z");

describe("how long a provider asks to wait", () => {
  it.each<[string, Record<string, string>, number | undefined]>([
    ["seconds", { "retry-after": "7" }, 7_000],
    ["a fraction", { "retry-after": "0.25" }, 250],
    ["a date", { "retry-after": "Tue, 01 Dec 2026 00:01:00 GMT" }, 60_000],
    ["a date that is past", { "retry-after": "Mon, 30 Nov 2026 00:00:00 GMT" }, 0],
    ["milliseconds go before", { "retry-after-ms": "120", "retry-after": "1" }, 120],
    ["nothing", {}, undefined],
    ["nonsense", { "retry-after": "soon" }, undefined],
    [
      "the limit that is used up",
      {
        "x-ratelimit-remaining-requests": "12",
        "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m30.5s",
      },
      90_500,
    ],
    [
      "the longer of two",
      {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "20ms",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "2s",
      },
      2_000,
    ],
    ["an epoch in ms", { "x-ratelimit-reset": `${NOW + 5_000}` }, 5_000],
    ["an epoch in s", { "x-ratelimit-reset": `${NOW / 1000 + 5}` }, 5_000],
    ["seconds to go", { "x-ratelimit-reset": "9" }, 9_000],
    [
      "the standard's header goes before the limits",
      { "retry-after": "3", "x-ratelimit-reset": "9" },
      3_000,
    ],
  ])("[LLW6] %s", (_, headers, expected) => {
    expect(retryAfterMs(new Headers(headers), NOW)).toBe(expected);
  });
});
