/**
 * Finds or obtains a nats-server that is new enough.
 *
 * The ways are tried in order; one that does not lead to it says so in a line, and the next is tried.
 * Nothing is installed on the system: what is obtained goes to the project's cache folder.
 */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { byGo, byRelease, bySid } from "./nats-obtain.mjs";
import { BIN } from "./project.mjs";
import { dim, firstLine, Plain, progress, run, say } from "./terminal.mjs";

/** Batched Direct Get came with 2.11, and on 2.9 the fence does not hold. */
export const MINIMUM = "2.11.0";

/**
 * @typedef {{ path: string, version: string, way: string }} Found
 * @typedef {{ path: string } | { why: string } | undefined} Outcome `undefined`: the way does not apply here
 * @typedef {{ env: NodeJS.ProcessEnv, cache: string, note: (text: string) => void, progress: typeof progress }} Context
 * @typedef {{ name: string, attempt: (context: Context) => Promise<Outcome> }} Way
 */

/** @type {Way[]} */
export const WAYS = [
  {
    name: "NATS_SERVER",
    attempt: async ({ env }) => (env["NATS_SERVER"] ? { path: env["NATS_SERVER"] } : undefined),
  },
  { name: "PATH", attempt: onPath },
  { name: "cache", attempt: inCache },
  { name: "go install", attempt: byGo },
  { name: "release", attempt: byRelease },
  { name: "Debian sid", attempt: bySid },
];

/**
 * @param {Partial<Context>} [context]
 * @param {Way[]} [ways]
 * @returns {Promise<Found>} rejects with what to do by hand when no way leads to one
 */
export async function obtainNats(context = {}, ways = WAYS) {
  /** @type {Context} */
  const full = {
    env: process.env,
    cache: BIN,
    note: (text) => say(dim(`  nats-server: ${text}`)),
    progress,
    ...context,
  };
  for (const way of ways) {
    try {
      const outcome = await way.attempt(full);
      if (outcome === undefined) continue;
      if ("why" in outcome) {
        full.note(`${way.name}: ${outcome.why}`);
        continue;
      }
      const judged = await judge(outcome.path);
      if (judged.ok) return { path: outcome.path, version: judged.version, way: way.name };
      full.note(`${way.name}: ${judged.why}`);
    } catch (error) {
      full.note(`${way.name}: ${firstLine(error)}`);
    }
  }
  throw new Plain(
    `no nats-server ${MINIMUM} or newer could be had. Put one on PATH, or name it: NATS_SERVER=/path/to/nats-server`,
  );
}

/**
 * Asks a binary for its version.
 *
 * @param {string} path
 * @returns {Promise<{ ok: true, version: string } | { ok: false, why: string }>}
 */
export async function judge(path) {
  try {
    accessSync(path, constants.X_OK);
  } catch {
    return { ok: false, why: `${path} is not there, or not executable` };
  }
  const { output } = await run(path, ["--version"], { timeoutMs: 10_000 });
  const version = /nats-server: v(\d+\.\d+\.\d+)/.exec(output)?.[1];
  if (version === undefined)
    return { ok: false, why: `${path} does not say that it is a nats-server` };
  if (isOlder(version, MINIMUM))
    return { ok: false, why: `${path} is ${version}, older than ${MINIMUM}: passed over` };
  return { ok: true, version };
}

/**
 * @param {string} version
 * @param {string} than
 */
export function isOlder(version, than) {
  const parts = version.split(".").map(Number);
  const others = than.split(".").map(Number);
  const at = parts.findIndex((part, i) => part !== others[i]);
  return at >= 0 && /** @type {number} */ (parts[at]) < /** @type {number} */ (others[at]);
}

/** @type {Way["attempt"]} */
async function onPath({ env, note }) {
  const folders = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  for (const folder of folders) {
    const path = join(folder, "nats-server");
    try {
      accessSync(path, constants.X_OK);
    } catch {
      continue;
    }
    const judged = await judge(path);
    if (judged.ok) return { path };
    note(judged.why);
  }
  return { why: "none that is new enough" };
}

/** @type {Way["attempt"]} */
async function inCache({ cache }) {
  const path = join(cache, "nats-server");
  try {
    accessSync(path, constants.X_OK);
    return { path };
  } catch {
    return { why: "nothing there yet" };
  }
}
