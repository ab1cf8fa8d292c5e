/** Set-up that every local command does first: dependencies, build, nats-server, redis-server. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { obtainNats } from "./nats.mjs";
import { obtainRedis } from "./redis.mjs";
import { ROOT } from "./project.mjs";
import { entry, Plain, progress, run, say } from "./terminal.mjs";

/**
 * @returns {Promise<{ nats: import("./nats.mjs").Found, redis: { path: string } | { byHand: string } }>}
 */
export async function setUp() {
  await installDependencies();
  await build();
  const nats = await obtainNats();
  const redis = await obtainRedis();
  return { nats, redis };
}

/** `npm ci` where what is installed is not what the lockfile says. */
async function installDependencies() {
  const why = outdated(ROOT);
  if (why === undefined) return;
  await progress(`installing dependencies (npm ci): ${why}`, () =>
    must("npm ci", "npm", ["ci", "--loglevel=error"]),
  );
}

/** Compiles what has changed. A failing build is shown whole. */
export async function build() {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  await progress("building", () =>
    must("the build", process.execPath, [tsc, "-b", "tsconfig.build.json"]),
  );
}

/**
 * @param {string} what
 * @param {string} command
 * @param {string[]} args
 */
async function must(what, command, args) {
  const { code, output } = await run(command, args, { cwd: ROOT });
  if (code !== 0) throw new Plain(`${what} failed:\n${output.trim()}`);
}

/**
 * Why dependencies have to be installed; `undefined` when node_modules holds what the lockfile says.
 *
 * npm keeps its own record of what it installed. Comparing the two needs no stamp of ours, and sees also
 * an `npm install` done by hand.
 *
 * @param {string} root
 * @returns {string | undefined}
 */
export function outdated(root) {
  const record = join(root, "node_modules/.package-lock.json");
  if (!existsSync(record)) return "nothing is installed yet";
  const wanted = packagesOf(join(root, "package-lock.json"));
  const installed = packagesOf(record);
  for (const [path, { version, link, optional }] of Object.entries(wanted)) {
    if (!path.startsWith("node_modules/") && !path.includes("/node_modules/")) continue; // our own rooms
    const there = installed[path];
    // Builds for other platforms are in the lockfile and are rightly not here.
    if (there === undefined && optional) continue;
    const matches = there !== undefined && (link ? there.link === true : there.version === version);
    if (!matches) return `${path.replace(/^.*node_modules\//, "")} has changed`;
  }
  return undefined;
}

/** @typedef {Record<string, { version?: string, link?: boolean, optional?: boolean }>} Packages */

/** @param {string} file */
function packagesOf(file) {
  const lock = /** @type {{ packages: Packages }} */ (JSON.parse(readFileSync(file, "utf8")));
  return lock.packages;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await entry(async () => {
    const { nats, redis } = await setUp();
    say(`nats-server ${nats.version}  ${nats.path}`);
    say("path" in redis ? `redis-server  ${redis.path}` : `no redis-server: ${redis.byHand}`);
  });
}
