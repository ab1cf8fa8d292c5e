/** Finds redis-server, or has the machine's package manager install it. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { dim, firstLine, progress, run, say } from "./terminal.mjs";

/** @typedef {{ name: string, commands: string[][], byHand: string }} Manager */

/**
 * @param {{ env?: NodeJS.ProcessEnv, note?: (text: string) => void }} [options]
 * @returns {Promise<{ path: string } | { byHand: string }>} where it is, or the command that installs it
 */
export async function obtainRedis({
  env = process.env,
  note = (text) => say(dim(`  redis-server: ${text}`)),
} = {}) {
  const path = find("redis-server", env);
  if (path !== undefined) return { path };
  const manager = managerOf(env);
  if (manager === undefined) {
    note("not on PATH, and there is no apt-get or brew to install it");
    return { byHand: "install Redis 6 or newer, so that redis-server is on PATH" };
  }
  if (manager.commands.length === 0) {
    note("not on PATH, and installing it needs root");
    return { byHand: manager.byHand };
  }
  try {
    await progress(`installing Redis (${manager.byHand})`, async () => {
      for (const [command = "", ...args] of manager.commands) {
        const { code, output } = await run(command, args, {
          env: { ...env, DEBIAN_FRONTEND: "noninteractive" },
        });
        if (code !== 0)
          throw new Error(output.trim().split("\n").at(-1) || `${command} ended with code ${code}`);
      }
    });
  } catch (error) {
    note(`${manager.name}: ${firstLine(error)}`);
  }
  const installed = find("redis-server", env);
  return installed === undefined ? { byHand: manager.byHand } : { path: installed };
}

/**
 * @param {NodeJS.ProcessEnv} env
 * @returns {Manager | undefined} with no commands where it is there and may not be used
 */
function managerOf(env) {
  if (find("brew", env)) {
    return { name: "brew", commands: [["brew", "install", "redis"]], byHand: "brew install redis" };
  }
  if (!find("apt-get", env)) return undefined;
  const install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"];
  const isRoot = process.getuid?.() === 0;
  return {
    name: "apt-get",
    commands: isRoot ? [["apt-get", "update", "-qq"], install] : [],
    byHand: `${isRoot ? "" : "sudo "}apt-get install redis-server`,
  };
}

/**
 * @param {string} name
 * @param {NodeJS.ProcessEnv} env
 */
function find(name, env) {
  const folders = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => join(folder, name)).find(isExecutable);
}

/** @param {string} path */
function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
