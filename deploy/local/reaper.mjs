/**
 * The reaper: ends processes and removes folders when the process that asked for them is gone,
 * however it went (`kill -9` and a crashed test worker run no exit hooks).
 *
 * It reads lines on stdin, and the end of stdin is the death of the asker:
 *
 *     start <pid>    a process group to end
 *     gone <pid>     it ended by itself (its number may be given to a stranger)
 *     dir <path>     a folder to remove
 *     kept <path>    it is removed, or to be kept
 */
import { rmSync } from "node:fs";
import { createInterface } from "node:readline";

/** @type {Set<number>} */
const groups = new Set();
/** @type {Set<string>} */
const folders = new Set();
/** @type {Record<string, (what: string) => unknown>} */
const verbs = {
  start: (what) => groups.add(Number(what)),
  gone: (what) => groups.delete(Number(what)),
  dir: (what) => folders.add(what),
  kept: (what) => folders.delete(what),
};

// A terminal's Ctrl-C and hang-up are for the asker; the reaper must outlive it by a moment.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});

for await (const line of createInterface({ input: process.stdin })) {
  const space = line.indexOf(" ");
  verbs[line.slice(0, space)]?.(line.slice(space + 1));
}

for (const pid of groups) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    const hasJustEnded = error instanceof Error && "code" in error && error.code === "ESRCH";
    if (!hasJustEnded) console.error(`reaper: process group ${pid}:`, error);
  }
}
for (const folder of folders)
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
