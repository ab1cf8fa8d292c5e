import { describe, expect, it } from "vitest";
import { closing } from "../closing-line.mjs";

const report = { numPassedTests: 10, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 };

describe("CI's closing line", () => {
  it.each([
    [report, 0, "10 passed, 0 failed", 0],
    [{ ...report, numPendingTests: 2, numTodoTests: 1 }, 0, "10 passed, 0 failed, 3 skipped", 0],
    [{ ...report, numFailedTests: 2 }, 1, "10 passed, 2 failed", 1],
    // The lint failed, the tests did not.
    [report, 1, "10 passed, 1 failed", 1],
    // The tests did not even begin.
    [undefined, 1, "0 passed, 1 failed", 1],
    // Nothing was run, and nobody complained.
    [{ ...report, numPassedTests: 0 }, 0, "0 passed, 1 failed", 1],
  ])("[ARC5] tells the truth: %j with exit code %i", (tests, exitCode, line, ends) => {
    expect(closing(tests, exitCode)).toEqual({ line, exitCode: ends });
  });
});
