/** One local system per data folder: two would write to the same JetStream files. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Plain } from "./terminal.mjs";

/**
 * Takes the folder for this process. A lock whose owner has died does not count.
 *
 * @param {string} data
 * @returns {() => void} gives it back
 */
export function lock(data) {
  mkdirSync(data, { recursive: true });
  const file = join(data, "owner.pid");
  const owner = readOwner(file);
  if (owner !== undefined && isAlive(owner)) {
    throw new Plain(
      `a local system with this data folder is running already (pid ${owner}). Stop it (kill ${owner}), or give another: npm start -- --data FOLDER --port PORT --admin-port PORT`,
    );
  }
  writeFileSync(file, `${process.pid}`);
  return () => {
    if (readOwner(file) === process.pid) rmSync(file);
  };
}

/** @param {string} file */
function readOwner(file) {
  try {
    return Number(readFileSync(file, "utf8")) || undefined;
  } catch {
    return undefined; // nobody's
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === "EPERM";
  }
}
