/** What the local commands print: short lines, and a running clock beside what takes long. */
import { spawn } from "node:child_process";

export const STOP_SIGNALS = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"]);

const tty = process.stdout.isTTY === true && !process.env.CI;
const color = tty && !process.env.NO_COLOR;

const paint = (/** @type {number} */ code) => (/** @type {string} */ text) =>
  color ? `\u001b[${code}m${text}\u001b[0m` : text;
export const bold = paint(1);
export const dim = paint(2);
export const red = paint(31);
export const green = paint(32);
export const yellow = paint(33);

/** @param {string} text */
export function say(text) {
  process.stdout.write(`${text}\n`);
}

/** @param {string} text */
export function warn(text) {
  say(`${yellow("!")} ${text}`);
}

/** An error whose message is all that the person at the terminal needs; no stack is shown. */
export class Plain extends Error {}

/**
 * Shows `label` with a running clock until `work` is done, then one line with the outcome.
 *
 * @template T
 * @param {string} label
 * @param {() => Promise<T>} work
 * @param {(result: T) => string} [outcome] what to add to the label at the end
 * @returns {Promise<T>}
 */
export async function progress(label, work, outcome = () => "") {
  const start = Date.now();
  const seconds = () => `${((Date.now() - start) / 1000).toFixed(0)} s`;
  const clock = setInterval(
    () => {
      if (tty) process.stdout.write(`\r\u001b[K${dim("…")} ${label} ${dim(seconds())}`);
      else say(`… ${label} ${seconds()}`);
    },
    tty ? 200 : 15_000,
  );
  const end = (/** @type {string} */ line) => {
    clearInterval(clock);
    say(`${tty ? "\r\u001b[K" : ""}${line}`);
  };
  try {
    const result = await work();
    end(`${green("✓")} ${label}${outcome(result)} ${dim(seconds())}`);
    return result;
  } catch (error) {
    end(`${red("✗")} ${label} ${dim(seconds())}`);
    throw error;
  }
}

/** @param {unknown} error */
export function firstLine(error) {
  if (!(error instanceof Error)) return String(error);
  // fetch() hides what went wrong in the cause.
  const cause = error.cause instanceof Error ? ` (${error.cause.message})` : "";
  return `${error.message}${cause}`.split("\n")[0] ?? "";
}

/** Programs that we wait for; they end with us. @type {Set<import("node:child_process").ChildProcess>} */
const waitedFor = new Set();
process.on("exit", () => {
  for (const child of waitedFor) child.kill("SIGTERM");
});

/** @param {import("node:child_process").ChildProcess} child */
function endWithUs(child) {
  waitedFor.add(child);
  child.once("close", () => waitedFor.delete(child));
}

/**
 * Runs a program to its end, its output collected.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, timeoutMs?: number }} [options]
 * @returns {Promise<{ code: number | null, output: string }>} rejects only when it cannot be started
 */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ["ignore", "pipe", "pipe"],
      timeout: options.timeoutMs,
    });
    endWithUs(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (/** @type {string} */ chunk) => (output += chunk));
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, output }));
  });
}

/**
 * Runs a program to its end on this terminal.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv }} [options]
 * @returns {Promise<number>} its exit code; 1 where a signal ended it
 */
export function show(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: "inherit",
    });
    endWithUs(child);
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
}

/**
 * The entry of every local command: a plain error is one line, any other is shown whole; both exit with 1.
 *
 * @param {() => Promise<number | void>} main
 */
export async function entry(main) {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    say(`Node 20.19 or newer is needed; this is ${process.versions.node}.`);
    process.exit(1);
  }
  // Without a handler no exit hook runs, and what we wait for would go on alone.
  for (const signal of STOP_SIGNALS) process.on(signal, () => process.exit(130));
  // Nobody reads any more (`npm test | head`): there is nothing left to do.
  process.stdout.on("error", () => process.exit(1));
  try {
    process.exitCode = (await main()) ?? 0;
  } catch (error) {
    say(
      error instanceof Plain
        ? `${red("✗")} ${error.message}`
        : String(error instanceof Error ? error.stack : error),
    );
    process.exitCode = 1;
  }
}
