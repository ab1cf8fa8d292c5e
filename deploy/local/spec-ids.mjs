/**
 * Holds the numbered rules against the tests: every rule of a SPEC.md, and every invariant of the README,
 * is cited by the name of a test, as in `it("[TAIL3] …")`; and no test cites a rule that there is not.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { ROOT } from "./project.mjs";
import { entry, Plain, say } from "./terminal.mjs";

const INVARIANTS = Array.from({ length: 11 }, (_, i) => `INV${i + 1}`);
const SKIPPED = new Set(["node_modules", "dist", ".git", ".throughline"]);

/**
 * @param {string} root
 * @returns {{ rules: number, problems: string[] }}
 */
export function checkSpecIds(root) {
  const files = [...filesIn(root)];
  /** @type {Map<string, string>} */
  const rules = new Map(INVARIANTS.map((id) => [id, "the invariants"]));
  /** @type {string[]} */
  const problems = [];
  for (const file of files.filter((each) => /\/SPEC[^/]*\.md$/.test(each))) {
    for (const id of rulesIn(readFileSync(file, "utf8"))) {
      const place = relative(root, file);
      if (rules.has(id)) problems.push(`${id} stands in ${place} and in ${rules.get(id)}`);
      rules.set(id, place);
    }
  }

  const cited = new Set();
  for (const file of files.filter((each) => each.endsWith(".test.ts"))) {
    for (const id of citedIn(readFileSync(file, "utf8"))) {
      cited.add(id);
      if (!rules.has(id) && isOfAKnownKind(id, rules))
        problems.push(`${relative(root, file)} cites ${id}, which no SPEC.md has`);
    }
  }
  for (const [id, place] of rules)
    if (!cited.has(id)) problems.push(`${id} (${place}) is cited by no test`);
  return { rules: rules.size, problems };
}

/**
 * Rules are table rows or list items that begin with their id: `| TAIL3 | …`, `* **TAIL3** …`.
 *
 * @param {string} markdown
 */
function rulesIn(markdown) {
  return [...markdown.matchAll(/^(?:\|\s*|[*-]\s+|#+\s+)[*`]*([A-Z]{2,8}\d+)\b/gm)].map(
    (match) => match[1] ?? "",
  );
}

/**
 * `[TAIL3]`, `[INV1, TAIL3]` at the beginning of a test's or a group's name.
 *
 * @param {string} source
 */
function citedIn(source) {
  const lists = source.matchAll(/["'`](?:\[[A-Z]{1,8}\d+(?:[,;/ ]+[A-Z]{1,8}\d+)*\]\s*)+/g);
  return [...lists].flatMap(([list]) => list.match(/[A-Z]{1,8}\d+/g) ?? []);
}

/**
 * A test may cite what has no SPEC.md (a case of the field, C04); but not a rule that went away.
 *
 * @param {string} id
 * @param {Map<string, string>} rules
 */
function isOfAKnownKind(id, rules) {
  const kind = id.replace(/\d+$/, "");
  return [...rules.keys()].some((rule) => rule.replace(/\d+$/, "") === kind);
}

/**
 * @param {string} folder
 * @returns {Generator<string>}
 */
function* filesIn(folder) {
  for (const item of readdirSync(folder, { withFileTypes: true })) {
    if (SKIPPED.has(item.name)) continue;
    const path = join(folder, item.name);
    if (item.isDirectory()) yield* filesIn(path);
    else yield path;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await entry(async () => {
    const root = resolve(process.argv[2] ?? ROOT);
    if (!existsSync(root)) throw new Plain(`${root} is not there`);
    const { rules, problems } = checkSpecIds(root);
    for (const problem of problems) say(problem);
    say(`${rules} rules, ${problems.length} problems`);
    return problems.length === 0 ? 0 : 1;
  });
}
