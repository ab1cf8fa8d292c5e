import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { aptSources, sidConfiguration } from "../apt-scratch.mjs";
import { byGo, checksumProblem, WANTED } from "../nats-obtain.mjs";
import { isOlder, obtainNats, WAYS } from "../nats.mjs";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "throughline-resolver-"));
});
afterEach(() => rmSync(home, { recursive: true }));

/** A program that says it is this version; returns its folder, for PATH. */
function fake(folder: string, name: string, script: string): string {
  const dir = join(home, folder);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(dir, name), 0o755);
  return dir;
}

const natsOf = (folder: string, version: string): string =>
  fake(folder, "nats-server", `echo "nats-server: v${version}"`);

async function resolve(
  env: Record<string, string>,
  ways = WAYS.slice(0, 3),
): Promise<{ found: { path: string; version: string; way: string } | string; notes: string[] }> {
  const notes: string[] = [];
  const context = {
    env,
    cache: join(home, "cache"),
    note: (text: string) => void notes.push(text),
    progress: async <T>(_: string, work: () => Promise<T>): Promise<T> => work(),
  };
  try {
    return { found: await obtainNats(context, ways), notes };
  } catch (error) {
    return { found: error instanceof Error ? error.message : String(error), notes };
  }
}

describe("finding nats-server", () => {
  it("[OBT1] goes by the order: variable, PATH, cache, Go, release, Debian", () => {
    expect(WAYS.map((way) => way.name)).toEqual([
      "NATS_SERVER",
      "PATH",
      "cache",
      "go install",
      "release",
      "Debian sid",
    ]);
  });

  it("[OBT1] takes the first that is new enough, and asks no further", async () => {
    const named = join(natsOf("named", "2.12.0"), "nats-server");
    const path = natsOf("onpath", "2.13.1");
    natsOf("cache", "2.14.2");
    const asked: string[] = [];
    const never = { name: "never", attempt: () => Promise.resolve(void asked.push("never")) };
    const ways = [...WAYS.slice(0, 3), never];
    expect((await resolve({ NATS_SERVER: named, PATH: path }, ways)).found).toMatchObject({
      version: "2.12.0",
      way: "NATS_SERVER",
    });
    expect((await resolve({ PATH: path }, ways)).found).toMatchObject({
      version: "2.13.1",
      way: "PATH",
    });
    expect((await resolve({ PATH: "" }, ways)).found).toMatchObject({
      version: "2.14.2",
      way: "cache",
    });
    expect(asked).toEqual([]);
  });

  it("[OBT2] passes over an older one on PATH with a note, and looks on in PATH", async () => {
    const old = natsOf("debian", "2.9.10");
    const current = natsOf("later", "2.15.2");
    const { found, notes } = await resolve({ PATH: `${old}:/nowhere:${current}` });
    expect(found).toMatchObject({
      path: join(current, "nats-server"),
      version: "2.15.2",
      way: "PATH",
    });
    expect(notes).toEqual([`${old}/nats-server is 2.9.10, older than 2.11.0: passed over`]);
  });

  it("[OBT3] each way that fails says so in one line, and the next is tried", async () => {
    const broken = fake("broken", "nats-server", "echo something else");
    const ways = [
      ...WAYS.slice(0, 3),
      {
        name: "thrower",
        attempt: () =>
          Promise.reject(
            new Error("no route\nand a second line", { cause: new Error("ENOTFOUND") }),
          ),
      },
      {
        name: "last",
        attempt: async () => ({ path: join(natsOf("made", "2.15.2"), "nats-server") }),
      },
    ];
    const { found, notes } = await resolve({ NATS_SERVER: "/no/such/file", PATH: broken }, ways);
    expect(found).toMatchObject({ way: "last" });
    expect(notes).toEqual([
      "NATS_SERVER: /no/such/file is not there, or not executable",
      `${broken}/nats-server does not say that it is a nats-server`,
      "PATH: none that is new enough",
      "cache: nothing there yet",
      "thrower: no route",
    ]);
  });

  it("[OBT3] says what to do by hand when every way has failed", async () => {
    expect((await resolve({ PATH: "" })).found).toContain("NATS_SERVER=/path/to/nats-server");
  });

  it("[OBT4] a way that breaks off leaves nothing in the cache", async () => {
    const go = fake(
      "go",
      "go",
      '[ "$1" = version ] && exit 0; echo half > "$GOBIN/nats-server"; echo "no network" >&2; exit 1',
    );
    const { notes } = await resolve({ PATH: `${go}:/usr/bin:/bin` }, [
      { name: "go install", attempt: byGo },
    ]);
    expect(notes).toEqual(["go install: no network"]);
    expect(readdirSync(join(home, "cache"))).toEqual([]);
  });

  it("[OBT4] Go builds the pinned version into the cache and nowhere else", async () => {
    const go = fake(
      "go",
      "go",
      `[ "$1" = version ] && exit 0; printf '#!/bin/sh\\necho "nats-server: v${WANTED} $*"' > "$GOBIN/nats-server"; echo "$2" > ${home}/asked`,
    );
    const { found } = await resolve({ PATH: `${go}:/usr/bin:/bin` }, [
      { name: "go install", attempt: byGo },
    ]);
    expect(found).toMatchObject({ path: join(home, "cache/nats-server"), version: WANTED });
    expect(existsSync(join(go, "nats-server"))).toBe(false);
  });

  it("[OBT5] a download is used only if the release's checksum file names its checksum", () => {
    const bytes = Buffer.from("the archive");
    const sum = createHash("sha256").update(bytes).digest("hex");
    expect(
      checksumProblem("a.tar.gz", bytes, `${"0".repeat(64)}  b.tar.gz\n${sum}  a.tar.gz\n`),
    ).toBeUndefined();
    expect(checksumProblem("a.tar.gz", bytes, `${sum} *a.tar.gz`)).toBeUndefined();
    expect(checksumProblem("a.tar.gz", bytes, `${"0".repeat(64)}  a.tar.gz`)).toContain(
      "the release says 000",
    );
    expect(checksumProblem("a.tar.gz", bytes, `${sum}  other.tar.gz`)).toContain("does not list");
    expect(checksumProblem("a.tar.gz", bytes, "")).toContain("does not list");
  });

  it.each([
    ["2.9.10", "2.11.0", true],
    ["2.10.27", "2.11.0", true],
    ["2.11.0", "2.11.0", false],
    ["2.15.2", "2.11.0", false],
    ["3.0.0", "2.11.0", false],
    ["1.99.99", "2.11.0", true],
  ])("[OBT2] %s older than %s: %s", (version, than, older) => {
    expect(isOlder(version, than)).toBe(older);
  });
});

describe("apt's scratch configuration", () => {
  it("[OBT6] takes the machine's own mirror, from both formats, and not the security archive", () => {
    const etc = join(home, "apt");
    mkdirSync(join(etc, "sources.list.d"), { recursive: true });
    writeFileSync(
      join(etc, "sources.list"),
      "# deb http://commented.example/debian x main\ndeb [arch=amd64] http://one.example/debian bookworm main\n",
    );
    writeFileSync(
      join(etc, "sources.list.d/two.sources"),
      "Types: deb\nURIs: http://two.example/debian-security https://three.example/debian/\nSuites: bookworm\n",
    );
    writeFileSync(
      join(etc, "sources.list.d/ignored.bak"),
      "deb http://four.example/debian x main\n",
    );
    const usable = aptSources(etc).filter((source) => source.isDebian);
    expect(usable.map((source) => source.uri)).toEqual([
      "http://one.example/debian",
      "https://three.example/debian/",
    ]);
  });

  it("[OBT6] points every folder that apt writes to into the scratch folder", () => {
    const file = sidConfiguration(home, { uri: "http://one.example/debian", isDebian: true });
    expect(file.startsWith(home)).toBe(true);
    expect(existsSync(join(home, "lists/partial"))).toBe(true);
    expect(existsSync(join(home, "cache/archives/partial"))).toBe(true);
  });
});
