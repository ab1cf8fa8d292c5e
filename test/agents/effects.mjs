/** The world outside of the log: what tools and steps did is a line in a file, which outlives a kill -9. */
import { appendFileSync, readFileSync } from "node:fs";

/** @typedef {{ record: (line: string) => void, count: (line: string) => number }} Effects */

/**
 * @param {string} file all workers of a test share it; lines are short, so that an append is whole
 * @returns {Effects}
 */
export function openEffects(file) {
  appendFileSync(file, "");
  return {
    record: (line) => appendFileSync(file, `${line}\n`),
    count: (line) =>
      readFileSync(file, "utf8")
        .split("\n")
        .filter((each) => each === line).length,
  };
}
