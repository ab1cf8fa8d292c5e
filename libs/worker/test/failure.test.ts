import { EventTooLarge } from "@throughline/broker";
import { FAILURE_CODES } from "@throughline/protocol";
import { commandSchema } from "@throughline/protocol/schemas";
import { describe, expect, it } from "vitest";
import { AgentError, failureOf, inputFailure } from "../src/failure.ts";
import { snapshotDue } from "../src/snapshots.ts";

describe("failures", () => {
  it("[FIN3] tell code, message and retryable, and no stack", () => {
    expect(failureOf(new AgentError("quota", "too much", { retryable: true }))).toEqual({
      code: "quota",
      message: "too much",
      retryable: true,
    });
    expect(failureOf(new Error("boom"))).toEqual({
      code: "agent_error",
      message: "boom",
      retryable: true,
    });
    expect(failureOf("a text")).toMatchObject({ code: "agent_error", message: "a text" });
    expect(failureOf(new Error("x".repeat(10_000))).message).toHaveLength(2_000);
  });

  it("[FIN9] name the limit of an event, and have no chance a second time", () => {
    const error = new EventTooLarge(
      "state.updated is 300000 bytes, 262016 at most: write it in smaller pieces, or give it back as the output of a step",
    );
    expect(failureOf(error)).toEqual({
      code: "event_too_large",
      message: error.message,
      retryable: FAILURE_CODES.event_too_large.retryable,
    });
    expect(FAILURE_CODES.event_too_large.retryable).toBe(false);
  });

  it("[HOST8] of an input name the field", () => {
    const parsed = commandSchema.safeParse({
      type: "run.retry",
      id: "r1",
      session_id: "s 1",
      run_id: 7,
    });
    const failure = inputFailure(parsed.error);
    expect(failure.code).toBe("invalid_input");
    expect(failure.retryable).toBe(false);
    expect(failure.message).toMatch(/session_id: must be .*; run_id: .*string/);
    expect(inputFailure(new AgentError("path_not_found", "there is no such")).code).toBe(
      "path_not_found",
    );
    expect(inputFailure(new TypeError("no")).message).toBe("no");
  });
});

describe("snapshots", () => {
  it("[SNAP1] are due after 200 events, or after 30 s with any", () => {
    expect(snapshotDue(199, 29_999)).toBe(false);
    expect(snapshotDue(200, 0)).toBe(true);
    expect(snapshotDue(1, 30_000)).toBe(true);
    expect(snapshotDue(0, 100_000)).toBe(false);
  });
});
