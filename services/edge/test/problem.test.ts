import { ERROR_CODES, type ErrorCode } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import { problem } from "../src/transport/problem.ts";

const CODES = Object.keys(ERROR_CODES).filter((code): code is ErrorCode => code in ERROR_CODES);

describe("a problem", () => {
  test.each(CODES)("[HTTP7] %s says when to ask again exactly where that helps", (code) => {
    const { status, headers, body } = problem(code, "why");
    const mayPass = status === 429 || status === 503;
    expect(headers["Retry-After"]).toBe(mayPass ? "1" : undefined);
    expect(JSON.parse(body.toString())).toMatchObject({ code, detail: "why", status });
    expect("retry_after_ms" in JSON.parse(body.toString())).toBe(mayPass);
  });

  test("[HTTP7] who knows better says so, in whole seconds for the header", () => {
    const { headers, body } = problem("overloaded", "why", { retryAfterMs: 2_500 });
    expect(headers["Retry-After"]).toBe("3");
    expect(JSON.parse(body.toString())).toMatchObject({ retry_after_ms: 2_500 });
  });
});
