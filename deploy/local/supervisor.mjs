/**
 * Runs the processes of a local system: starts them, starts a crashed one again, stops all in order.
 *
 * Each has its own process group, so that a Ctrl-C reaches only us and we stop them in order; and all are
 * handed to the reaper, which ends them should we be killed.
 */
import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const REAPER = fileURLToPath(new URL("./reaper.mjs", import.meta.url));

/**
 * @typedef {object} Spec
 * @property {string} name
 * @property {string} command
 * @property {string[]} args
 * @property {Record<string, string>} [env] beside our own
 * @property {() => Promise<boolean>} ready a throw means "not yet"
 *
 * @typedef {object} Events
 * @property {(name: string, how: string, restartInMs: number) => void} crashed
 * @property {(name: string) => void} back
 * @property {(name: string) => void} hopeless crashed too often
 *
 * @typedef {object} Managed
 * @property {Spec} spec
 * @property {import("node:child_process").ChildProcess} child
 * @property {number[]} crashes times
 * @property {boolean} wanted
 * @property {Promise<string>} ended how it ended
 */

const READY_TIMEOUT_MS = 30_000;
const STOP_GRACE_MS = 10_000;
// One that comes back and falls again so often has a fault that starting it again will not cure.
const MAX_CRASHES = 4;
const CRASH_WINDOW_MS = 60_000;

/**
 * @param {{ logDir: string, events: Events, restartDelayMs?: number }} options
 */
export function createSupervisor({ logDir, events, restartDelayMs = 1000 }) {
  mkdirSync(logDir, { recursive: true });
  const reaper = spawn(process.execPath, [REAPER], {
    detached: true,
    stdio: ["pipe", "ignore", "inherit"],
  });
  /** @type {Map<string, Managed>} */
  const all = new Map();
  let stopping = false;

  const logFile = (/** @type {string} */ name) => join(logDir, `${name}.log`);
  const lastLog = (/** @type {string} */ name) =>
    readFileSync(logFile(name), "utf8").trim().split("\n").slice(-15).join("\n");

  /**
   * @param {Spec} spec
   * @param {"w" | "a"} mode
   */
  function begin(spec, mode) {
    const log = openSync(logFile(spec.name), mode);
    const child = spawn(spec.command, spec.args, {
      detached: true,
      stdio: ["ignore", log, log],
      env: { ...process.env, ...spec.env },
    });
    closeSync(log);
    if (child.pid !== undefined) reaper.stdin.write(`start ${child.pid}\n`);
    const ended = new Promise((/** @type {(how: string) => void} */ resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) => {
        reaper.stdin.write(`gone ${child.pid}\n`);
        resolve(signal === null ? `code ${code}` : signal);
      });
    });
    return { child, ended };
  }

  /**
   * Starts a process and resolves when it is ready; rejects with its last output when it ends before.
   *
   * @param {Spec} spec
   */
  async function start(spec) {
    /** @type {Managed} */
    const managed = { spec, crashes: [], wanted: true, ...begin(spec, "w") };
    all.set(spec.name, managed);
    await untilReady(managed);
    void watch(managed);
  }

  /** @param {Managed} managed */
  async function untilReady({ spec, ended }) {
    const deadline = Date.now() + READY_TIMEOUT_MS;
    /** @type {string | undefined} */
    let how;
    void ended.then((end) => (how = end));
    while (!(await isReady(spec))) {
      if (stopping) return;
      if (how !== undefined)
        throw new Error(
          `${spec.name} ended with ${how} before it was ready:\n${lastLog(spec.name)}`,
        );
      if (Date.now() > deadline)
        throw new Error(`${spec.name} is not ready after 30 s:\n${lastLog(spec.name)}`);
      await sleep(50);
    }
  }

  /** Waits for the end of a process and starts it again, until it is no longer wanted. @param {Managed} managed */
  async function watch(managed) {
    const { spec } = managed;
    for (;;) {
      const how = await managed.ended;
      if (stopping || !managed.wanted) return;
      const now = Date.now();
      managed.crashes = [...managed.crashes.filter((time) => now - time < CRASH_WINDOW_MS), now];
      if (managed.crashes.length > MAX_CRASHES) return events.hopeless(spec.name);
      events.crashed(spec.name, how, restartDelayMs);
      await sleep(restartDelayMs);
      if (stopping) return;
      Object.assign(managed, begin(spec, "a"));
      try {
        await untilReady(managed);
        if (!stopping) events.back(spec.name);
      } catch {
        managed.child.kill("SIGKILL"); // counted as one more crash by the next turn
      }
    }
  }

  /**
   * Stops group after group: SIGTERM, and SIGKILL for who takes longer than the grace.
   *
   * @param {string[][]} order
   */
  async function stop(order) {
    stopping = true;
    for (const names of order) {
      await Promise.all(names.flatMap((name) => all.get(name) ?? []).map(end));
    }
    reaper.stdin.end();
  }

  /** @param {Managed} managed */
  async function end(managed) {
    managed.wanted = false;
    const { child, ended } = managed;
    child.kill("SIGCONT"); // a stopped process does not see a SIGTERM
    child.kill("SIGTERM");
    const force = setTimeout(() => child.kill("SIGKILL"), STOP_GRACE_MS);
    await ended;
    clearTimeout(force);
  }

  /** For the impatient: everything ends now. */
  function kill() {
    stopping = true;
    for (const { child } of all.values()) child.kill("SIGKILL");
  }

  return { start, stop, kill, logFile, lastLog };
}

/** @param {Spec} spec */
async function isReady(spec) {
  try {
    return await spec.ready();
  } catch {
    return false;
  }
}

/** @param {number} ms */
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
