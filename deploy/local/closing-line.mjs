/**
 * Prints `N passed, N failed, N skipped` from vitest's own report, and exits with the checks' exit code.
 * A gate that failed without a failing test counts as one failure; so does a run without any test.
 */
import { existsSync, readFileSync } from "node:fs";
import { TEST_REPORT } from "./project.mjs";

/** @typedef {{ numPassedTests: number, numFailedTests: number, numPendingTests: number, numTodoTests: number }} Report */

const NONE = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 };

/**
 * @param {Report | undefined} report
 * @param {number} exitCode of the checks
 * @returns {{ line: string, exitCode: number }}
 */
export function closing(report, exitCode) {
  const { numPassedTests: passed, numFailedTests, numPendingTests, numTodoTests } = report ?? NONE;
  const bad = exitCode !== 0 || passed === 0;
  const failed = bad ? Math.max(numFailedTests, 1) : numFailedTests;
  const skipped = numPendingTests + numTodoTests;
  return {
    line: `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`,
    exitCode: failed > 0 ? exitCode || 1 : 0,
  };
}

if (process.argv[2] !== undefined) {
  const report = existsSync(TEST_REPORT)
    ? /** @type {Report} */ (JSON.parse(readFileSync(TEST_REPORT, "utf8")))
    : undefined;
  const { line, exitCode } = closing(report, Number(process.argv[2]));
  console.log(line);
  process.exitCode = exitCode;
}
