/** `npm run check`: every gate, each run to its end, then one line for each. Fails if any of them does. */
import { join } from "node:path";
import { ROOT } from "./project.mjs";
import { setUp } from "./setup.mjs";
import { bold, entry, green, Plain, progress, red, run, say, show } from "./terminal.mjs";

const bin = (/** @type {string} */ name) => join(ROOT, "node_modules/.bin", name);
const script = (/** @type {string} */ name) => join(ROOT, "deploy/local", name);

/** @type {{ name: string, command: string, args: string[], live?: boolean }[]} */
const GATES = [
  { name: "format", command: bin("oxfmt"), args: ["--check", "."] },
  { name: "lint", command: bin("oxlint"), args: ["--type-aware", "--deny-warnings", "."] },
  { name: "types of tests and scripts", command: bin("tsc"), args: ["-p", "tsconfig.json"] },
  { name: "architecture", command: process.execPath, args: [script("architecture.mjs")] },
  { name: "unused code", command: bin("knip"), args: ["--no-progress"] },
  {
    name: "declared dependencies",
    command: bin("knip"),
    args: ["--strict", "--no-progress", "--include", "dependencies,unlisted,unresolved"],
  },
  { name: "spec ids", command: process.execPath, args: [script("spec-ids.mjs")] },
  {
    name: "tests",
    command: process.execPath,
    args: [script("test.mjs"), ...process.argv.slice(2)],
    live: true,
  },
];

await entry(async () => {
  await setUp(); // compiles every room: the types of their sources are checked by that
  /** @type {{ name: string, ok: boolean, seconds: number }[]} */
  const results = [];
  for (const gate of GATES) {
    const start = Date.now();
    const ok = await passes(gate);
    results.push({ name: gate.name, ok, seconds: (Date.now() - start) / 1000 });
  }
  say("");
  for (const { name, ok, seconds } of results) {
    say(`${ok ? green("✓") : red("✗")} ${name.padEnd(28)} ${seconds.toFixed(1).padStart(6)} s`);
  }
  return results.every(({ ok }) => ok) ? 0 : 1;
});

/**
 * What a gate says is shown when it fails; of a live one at once.
 *
 * @param {typeof GATES[number]} gate
 */
async function passes({ name, command, args, live }) {
  if (live) {
    say(bold(`\n${name}`));
    return (await show(command, args, { cwd: ROOT })) === 0;
  }
  try {
    await progress(name, async () => {
      const { code, output } = await run(command, args, { cwd: ROOT });
      if (code !== 0) throw new Plain(output.trim());
    });
    return true;
  } catch (error) {
    if (!(error instanceof Plain)) throw error;
    say(error.message);
    return false;
  }
}
