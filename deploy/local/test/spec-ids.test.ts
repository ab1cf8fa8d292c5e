import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { checkSpecIds } from "../spec-ids.mjs";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "throughline-specs-"));
  const invariants = Array.from({ length: 11 }, (_, i) => `INV${i + 1}`);
  write("libs/a/test/invariants.test.ts", `it("[${invariants.join(", ")}] hold", () => {});`);
});
afterEach(() => rmSync(root, { recursive: true }));

function write(file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

describe("the check of spec ids", () => {
  it("[ARC4] is content when every rule is cited by the name of a test", () => {
    write(
      "libs/a/SPEC.md",
      "| id | rule |\n| --- | --- |\n| RULE1 | one |\n| `RULE2` | two |\n\n* **RULE3** three\n",
    );
    write(
      "libs/a/test/a.test.ts",
      'it("[RULE1] x", f);\nit.each([1])(`[RULE2] ${y}`, f);\ndescribe("[RULE3] z", f);',
    );
    expect(checkSpecIds(root)).toEqual({ rules: 14, problems: [] });
  });

  it("[ARC4] lists rules that no test's name cites; a comment is no citation", () => {
    write("libs/a/SPEC.md", "| RULE1 | one |\n| RULE2 | two |\n");
    write(
      "libs/a/test/a.test.ts",
      '// [RULE2] is kept\nit("[RULE1] x", f); const s = `see RULE2`;',
    );
    write("libs/a/src/a.ts", 'const s = "[RULE2] in a source";');
    expect(checkSpecIds(root).problems).toEqual(["RULE2 (libs/a/SPEC.md) is cited by no test"]);
  });

  it("[ARC4] lists an invariant that no test cites", () => {
    write("libs/a/test/invariants.test.ts", 'it("[INV1][INV2] hold", f);');
    expect(checkSpecIds(root).problems).toHaveLength(9);
    expect(checkSpecIds(root).problems[0]).toBe("INV3 (the invariants) is cited by no test");
  });

  it("[ARC4] lists a citation of a rule that there is not, and a rule that stands twice", () => {
    write("libs/a/SPEC.md", "| RULE1 | one |\n");
    write("libs/b/SPEC-MORE.md", "| RULE1 | one again |\n");
    write(
      "libs/a/test/a.test.ts",
      'it("[RULE1, RULE9] x", f); it("[C04] a case of the field", f);',
    );
    expect(checkSpecIds(root).problems).toEqual([
      "RULE1 stands in libs/b/SPEC-MORE.md and in libs/a/SPEC.md",
      "libs/a/test/a.test.ts cites RULE9, which no SPEC.md has",
    ]);
  });
});
