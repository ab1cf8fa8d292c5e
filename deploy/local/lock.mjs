/** One local system per data folder: two would write to the same JetStream files. */
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { Plain, run } from "./terminal.mjs";

/**
 * Takes the folder for this process. A lock whose owner has died does not count.
 *
 * @param {string} data
 * @returns {Promise<() => void>} gives it back
 */
export async function lock(data) {
  make(data);
  const file = join(data, "owner.pid");
  const owner = readOwner(file);
  if (owner !== undefined && (await isOurs(owner))) {
    throw new Plain(
      `a local system with this data folder is running already (pid ${owner}). Stop it (kill ${owner}), or run another beside it: npm start -- --data FOLDER --port PORT --admin-port PORT`,
    );
  }
  writeFileSync(file, `${process.pid}`);
  return () => {
    if (readOwner(file) === process.pid) rmSync(file);
  };
}

/**
 * Makes the folder, or says why it cannot be. Looked at first, since where a folder refuses new ones without
 * a reason (/proc), Node's recursive mkdir tries for ever.
 *
 * @param {string} data
 */
function make(data) {
  let above = data;
  while (!existsSync(above)) above = dirname(above);
  try {
    accessSync(above, constants.W_OK);
    if (above.startsWith("/proc") || above.startsWith("/sys"))
      throw new Error("it holds no files of ours");
    mkdirSync(data, { recursive: true });
    accessSync(join(data, "."), constants.W_OK);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Plain(
      `the data folder ${data} cannot be used: ${why}. Name another: npm start -- --data FOLDER`,
    );
  }
}

/** @param {string} file */
function readOwner(file) {
  try {
    return Number(readFileSync(file, "utf8")) || undefined;
  } catch {
    return undefined; // nobody's
  }
}

/** Not only alive: after a crash its number may have gone to a stranger. @param {number} pid */
async function isOurs(pid) {
  try {
    process.kill(pid, 0);
    const { output } = await run("ps", ["-p", `${pid}`, "-o", "command="]);
    return output.includes("start.mjs");
  } catch (error) {
    // No such process: free. No ps on this machine: better to refuse than to share the files.
    return !(error instanceof Error && "code" in error && error.code === "ESRCH");
  }
}
