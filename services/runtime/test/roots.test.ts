import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openRoots, type Roots, within } from "../src/roots.ts";

let base: string;
let roots: Roots;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), "throughline-roots-"));
  mkdirSync(join(base, "allowed", "inner"), { recursive: true });
  mkdirSync(join(base, "allowed-not"));
  mkdirSync(join(base, "secret"));
  writeFileSync(join(base, "secret", "key"), "x");
  writeFileSync(join(base, "allowed", "inner", "a.txt"), "x");
  symlinkSync(join(base, "secret"), join(base, "allowed", "way-out"));
  symlinkSync(join(base, "allowed"), join(base, "alias"));
  roots = await openRoots([join(base, "alias")]);
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

describe("allowed roots", () => {
  it("[ROOT1] finds what lies within, by absolute or relative name, through the root's own link too", async () => {
    const expected = join(base, "allowed", "inner");
    for (const name of [
      "inner",
      "./inner/../inner",
      join(base, "allowed/inner"),
      join(base, "alias/inner"),
    ]) {
      expect((await roots.find(name)).path, name).toBe(expected);
    }
    expect((await roots.find(".")).path).toBe(join(base, "allowed"));
    expect((await roots.find("inner/a.txt")).label).toBe("allowed/inner/a.txt");
  });

  it.each([
    ["an absolute path outside", () => join(base, "secret")],
    ["one that does not exist outside", () => join(base, "nothing-here")],
    ["a climb", () => "../secret"],
    ["a climb that comes back elsewhere", () => "inner/../../secret/key"],
    ["a folder whose name begins like the root's", () => join(base, "allowed-not")],
    ["a link that leads out", () => "way-out/key"],
    ["what does not exist behind a link that leads out", () => "way-out/nothing"],
    ["the empty name", () => ""],
    ["a NUL", () => "inner\0/a.txt"],
    ["the file system's root", () => "/"],
  ])("[ROOT2] refuses %s", async (_, name) => {
    await expect(roots.find(name())).rejects.toMatchObject({ code: "path_not_allowed" });
  });

  it("[ROOT3] says of what is missing inside that it is missing", async () => {
    await expect(roots.find("inner/b.txt")).rejects.toMatchObject({ code: "path_not_found" });
    await expect(roots.find("inner/a.txt/deeper")).rejects.toMatchObject({
      code: "path_not_found",
    });
  });

  it("[ROOT4] a root that does not exist fails the start", async () => {
    await expect(openRoots([join(base, "typo")])).rejects.toThrow("ENOENT");
  });

  it("[ROOT2] with no root at all nothing is allowed", async () => {
    const none = await openRoots([]);
    await expect(none.find("/tmp")).rejects.toMatchObject({ code: "path_not_allowed" });
    await expect(none.find(".")).rejects.toMatchObject({ code: "path_not_allowed" });
  });

  it("[ROOT2] within is about folders, not about letters", () => {
    expect(within("/a/b", "/a/b")).toBe(true);
    expect(within("/a/b", "/a/b/..c")).toBe(true);
    expect(within("/a/b", "/a/bc")).toBe(false);
    expect(within("/a/b", "/a")).toBe(false);
  });
});
