/**
 * Checks who imports whom, by the rules of .dependency-cruiser.cjs (all imports) and
 * .dependency-cruiser.run-time.cjs (what is left of them once types are erased).
 *
 * dependency-cruiser is content when it could read nothing: with a compiler that it does not know it said
 * "no violations found (0 modules)". So a room without a module that was read fails here.
 */
import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT } from "./project.mjs";
import { entry, Plain, run, say } from "./terminal.mjs";

/**
 * @typedef {object} Cruise what dependency-cruiser prints as JSON, as far as it is used here
 * @property {{ source: string, dependencies: unknown[] }[]} modules
 * @property {{ violations: { from: string, to: string, rule: { name: string } }[] }} summary
 */

/**
 * @param {string} root a folder with libs/ and services/
 * @returns {Promise<{ modules: number, violations: string[] }>} rejects when a room was not looked at
 */
export async function checkArchitecture(root) {
  const rooms = roomsOf(root);
  if (rooms.length === 0) throw new Plain(`the rules saw no module: ${root} has no rooms`);
  const all = await cruise(root, ".dependency-cruiser.cjs", rooms);
  const unseen = rooms.filter(
    (room) => !all.modules.some(({ source }) => source.startsWith(`${room}/`)),
  );
  const imports = all.modules.reduce((sum, { dependencies }) => sum + dependencies.length, 0);
  if (unseen.length > 0) throw new Plain(`the rules saw no module of ${unseen.join(", ")}`);
  if (imports === 0)
    throw new Plain(`the rules saw ${all.modules.length} modules and not one import`);
  const runTime = await cruise(root, ".dependency-cruiser.run-time.cjs", rooms);
  const violations = [...all.summary.violations, ...runTime.summary.violations];
  return {
    modules: all.modules.length,
    violations: [
      ...new Set(violations.map(({ rule, from, to }) => `${rule.name}: ${from} → ${to}`)),
    ],
  };
}

/**
 * The folders with sources, as `libs/protocol/src`.
 *
 * @param {string} root
 */
function roomsOf(root) {
  return ["libs", "services"]
    .filter((wing) => existsSync(join(root, wing)))
    .flatMap((wing) => readdirSync(join(root, wing)).map((room) => `${wing}/${room}/src`))
    .filter((source) => existsSync(join(root, source)));
}

/**
 * @param {string} root
 * @param {string} rules
 * @param {string[]} folders
 */
async function cruise(root, rules, folders) {
  const program = join(ROOT, "node_modules/dependency-cruiser/bin/dependency-cruise.mjs");
  const args = ["--config", join(ROOT, rules), "--output-type", "json", ...folders];
  const { output } = await run(process.execPath, [program, ...args], { cwd: root });
  if (!output.startsWith("{")) throw new Plain(`dependency-cruiser failed:\n${output.trim()}`);
  return /** @type {Cruise} */ (JSON.parse(output));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await entry(async () => {
    const { modules, violations } = await checkArchitecture(resolve(process.argv[2] ?? ROOT));
    for (const violation of violations) say(violation);
    say(`${modules} modules, ${violations.length} violations`);
    return violations.length === 0 ? 0 : 1;
  });
}
