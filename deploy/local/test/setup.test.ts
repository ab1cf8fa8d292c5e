import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ROOT } from "../project.mjs";
import { obtainRedis } from "../redis.mjs";
import { outdated } from "../setup.mjs";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "throughline-setup-"));
});
afterEach(() => rmSync(home, { recursive: true }));

type Packages = Record<
  string,
  { version?: string; link?: boolean; optional?: boolean; resolved?: string }
>;

function locks(wanted: Packages, installed?: Packages): string | undefined {
  writeFileSync(join(home, "package-lock.json"), JSON.stringify({ packages: wanted }));
  mkdirSync(join(home, "node_modules"), { recursive: true });
  if (installed) {
    writeFileSync(
      join(home, "node_modules/.package-lock.json"),
      JSON.stringify({ packages: installed }),
    );
  }
  return outdated(home);
}

describe("dependencies", () => {
  it("[PREP1] are installed when nothing is, or a version is another, or one is missing", () => {
    const zod = { "node_modules/zod": { version: "4.6.7" } };
    expect(locks(zod)).toBe("nothing is installed yet");
    expect(locks(zod, { "node_modules/zod": { version: "4.6.6" } })).toBe("zod has changed");
    expect(locks(zod, {})).toBe("zod has changed");
    const nested = { "node_modules/a/node_modules/@x/b": { version: "1.0.0" } };
    expect(locks(nested, {})).toBe("@x/b has changed");
  });

  it("[PREP1] are left alone when they are what the lockfile says", () => {
    const wanted = {
      "": { version: "0.1.0" },
      "libs/broker": { version: "0.1.0" },
      "node_modules/@throughline/broker": { link: true, resolved: "libs/broker" },
      "node_modules/zod": { version: "4.6.7" },
      "node_modules/@esbuild/darwin-arm64": { version: "1.0.0", optional: true },
    };
    const installed = {
      "libs/broker": { version: "0.1.0" },
      "node_modules/@throughline/broker": { link: true },
      "node_modules/zod": { version: "4.6.7" },
    };
    expect(locks(wanted, installed)).toBeUndefined();
    expect(
      locks(
        { ...wanted, "libs/new": {}, "node_modules/@throughline/new": { link: true } },
        installed,
      ),
    ).toBe("@throughline/new has changed");
  });

  it("[PREP1] of this very project are what its lockfile says", () => {
    expect(outdated(ROOT)).toBeUndefined();
  });
});

describe("redis-server", () => {
  function fake(name: string, script: string): string {
    const dir = join(home, "bin");
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(dir, name), 0o755);
    return dir;
  }
  const obtain = async (
    PATH: string,
  ): Promise<[{ path: string } | { byHand: string }, string[]]> => {
    const notes: string[] = [];
    return [await obtainRedis({ env: { PATH }, note: (text) => void notes.push(text) }), notes];
  };

  it("[PREP2] is taken from PATH", async () => {
    const bin = fake("redis-server", "exit 0");
    expect(await obtain(bin)).toEqual([{ path: join(bin, "redis-server") }, []]);
  });

  it("[PREP2] is installed by the package manager where that can be", async () => {
    const bin = fake("brew", `/bin/cp "$0" ${join(home, "bin/redis-server")}`);
    expect(await obtain(bin)).toEqual([{ path: join(bin, "redis-server") }, []]);
  });

  it("[PREP2] that can't be had is answered with the command to install it", async () => {
    const bin = fake("brew", "echo no network >&2; exit 1");
    expect(await obtain(bin)).toEqual([{ byHand: "brew install redis" }, ["brew: no network"]]);
    expect(await obtain("")).toEqual([
      { byHand: expect.stringContaining("redis-server") },
      [expect.stringContaining("not on PATH")],
    ]);
  });
});
