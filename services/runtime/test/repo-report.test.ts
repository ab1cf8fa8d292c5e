import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Broker, openBroker } from "@throughline/broker";
import { eventually, type NatsServer, removeDir, startNats, tempDir } from "@throughline/testkit";
import { createWorker, type Worker } from "@throughline/worker";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openRoots, repoReport, type RepoReportOutput } from "../src/index.ts";
import { gitHistory, parseLog } from "../src/repo-report/git-history.ts";
import { countLines, readTexts } from "../src/repo-report/read-texts.ts";
import { renderScan, renderTodos } from "../src/repo-report/sections.ts";
import { walkFolder } from "../src/repo-report/walk.ts";
import { cancelRun, ended, logOf, shownText, startRun } from "./follow.ts";

const CHECKOUT = resolve(import.meta.dirname, "../../..");
const searchPath = process.env["PATH"] ?? "";
const never = new AbortController().signal;

let nats: NatsServer;
let broker: Broker;
let worker: Worker;
let root: string;
let repo: string;

function git(...args: string[]): void {
  const who = [
    "-c",
    "user.name=Ann",
    "-c",
    "user.email=ann@example.org",
    "-c",
    "init.defaultBranch=main",
  ];
  execFileSync("git", [...who, ...args], { cwd: repo, stdio: "ignore" });
}

beforeAll(async () => {
  root = realpathSync(tempDir("report"));
  repo = join(root, "project");
  const put = (path: string, body: string | Buffer): void => {
    mkdirSync(join(repo, path, ".."), { recursive: true });
    writeFileSync(join(repo, path), body);
  };
  put("src/main.ts", "export const a = 1;\n// TODO: say why\nexport const b = 2;\n");
  put("src/deep/long.py", "x = 1\n".repeat(40));
  put("README.md", "# Project\n\nno final newline");
  put("logo.png", Buffer.from([0x89, 0x50, 0, 1, 2]));
  put("huge.txt", Buffer.alloc(1024 * 1024 + 1, "a"));
  put("node_modules/dep/index.js", "// FIXME not ours\n");
  put("empty.txt", "");
  writeFileSync(join(root, "outside.txt"), "secret\n");
  symlinkSync(join(root, "outside.txt"), join(repo, "link.txt"));
  symlinkSync(repo, join(repo, "src", "loop"));
  git("init");
  git("add", "README.md", "src/main.ts");
  git("commit", "-m", "Begin");
  git("add", "-A");
  git("commit", "-m", "Add the rest | with `marks`");

  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
  const roots = await openRoots([root, CHECKOUT]);
  worker = createWorker({ broker, agents: [repoReport({ roots, searchPath })] });
  await worker.start();
});
afterAll(async () => {
  await worker.stop();
  await broker.close();
  await nats.dispose();
  removeDir(root);
});

describe("repo-report", () => {
  it("[REP1] reports what is there, in steps, and ends with the figures", async () => {
    const { state, events } = await ended(
      broker,
      await startRun(broker, "repo-report", { path: repo }),
    );
    expect(state.output).toEqual({
      path: `${root.split("/").at(-1)}/project`,
      files: 6,
      folders: 3,
      bytes: 57 + 240 + 27 + 5 + 1024 * 1024 + 1,
      lines: 3 + 40 + 3,
      languages: { Python: 40, TypeScript: 3, Markdown: 3, "Plain text": 0 },
      todos: 1,
      commits: 2,
      truncated: false,
    } satisfies RepoReportOutput);
    expect(state.steps.map((s) => [s.name, s.status])).toEqual(
      ["scan", "languages", "sizes", "longest-files", "todos", "git-history"].map((name) => [
        name,
        "completed",
      ]),
    );
    const text = shownText(state);
    expect(text).toContain("| Python | 1 | 40 | 240 B | 87.0 % |");
    expect(text).toContain("| `huge.txt` | 1.0 MiB |");
    expect(text).toContain("* `src/main.ts:2` TODO say why");
    expect(text).toMatch(/\d{4}-\d\d-\d\d `[0-9a-f]+` Add the rest \\\| with \\`marks\\` \(Ann\)/);
    expect(text).not.toContain("FIXME not ours");
    expect(text).not.toContain("outside");
    expect(events.filter((event) => event.type === "model.chunk").length).toBeGreaterThan(5);
  });

  it("[REP2] streams its text in small deltas", async () => {
    const lengths: number[] = [];
    const run = await startRun(broker, "repo-report", { path: repo, pace_ms: 5 });
    const deltas = broker.events.ephemeral({ kind: "run", ...run }, (message) => {
      for (const line of Buffer.from(message.body).toString("utf8").split("\n")) {
        const event = JSON.parse(line) as { type: string; payload: { text: string } };
        if (event.type === "model.delta") lengths.push(event.payload.text.length);
      }
    });
    await ended(broker, run);
    deltas.close();
    expect(lengths.length).toBeGreaterThan(20);
    expect(Math.max(...lengths)).toBeLessThan(400);
  });

  it("[REP3] works on this very repository", async () => {
    const { state } = await ended(
      broker,
      await startRun(broker, "repo-report", { path: CHECKOUT }),
    );
    expect(state.status).toBe("completed");
    const output = state.output as RepoReportOutput;
    expect(output.languages["TypeScript"]).toBeGreaterThan(1_000);
    expect(shownText(state)).toContain("## Languages");
  });

  it("[REP4] a cancellation stops it in mid-report", async () => {
    const ref = await startRun(broker, "repo-report", { path: repo, pace_ms: 50 });
    await eventually(async () =>
      (await logOf(broker, ref)).some((event) => event.type === "model.chunk"),
    );
    await cancelRun(broker, ref);
    const { state } = await ended(broker, ref, 5_000);
    expect(state.status).toBe("cancelled");
    expect(state.messages.some((m) => m.finish_reason === "cancelled")).toBe(true);
  });

  it.each([
    ["no path", {}, "invalid_input", /^path: /],
    ["a path that is none", { path: 7 }, "invalid_input", /^path: /],
    ["a pace that is none", { path: ".", pace_ms: -1 }, "invalid_input", /^pace_ms: /],
    ["null", null, "invalid_input", /object/],
    ["a folder outside", { path: "/etc" }, "path_not_allowed", /TL_ALLOWED_ROOTS/],
    ["a climb", { path: "project/../../.." }, "path_not_allowed", /TL_ALLOWED_ROOTS/],
    ["a folder that is not there", { path: "nothing" }, "path_not_found", /nothing/],
    ["a file", { path: "project/README.md" }, "not_a_folder", /README/],
  ])("[REP5] refuses %s", async (_, input, code, message) => {
    const { state } = await ended(broker, await startRun(broker, "repo-report", input));
    expect(state.error).toMatchObject({ code, retryable: false });
    expect(state.error?.message).toMatch(message);
  });
});

describe("reading a folder", () => {
  it("[REP6] is bounded, and says when there is more", async () => {
    const few = await walkFolder(repo, never, { maxFiles: 2, maxDepth: 64 });
    expect([few.files.length, few.truncated]).toEqual([2, true]);
    const shallow = await walkFolder(repo, never, { maxFiles: 100, maxDepth: 1 });
    expect(shallow.files.map((file) => file.path)).not.toContain("src/deep/long.py");
    expect(shallow.truncated).toBe(true);
    const { files } = await walkFolder(repo, never);
    const texts = await readTexts(repo, files, never, {
      maxFileBytes: 1e6,
      maxTotalBytes: 100,
      maxTodos: 0,
    });
    expect(texts.truncated).toBe(true);
    expect(
      renderScan("x", { files: 1, folders: 1, bytes: 1, skipped: 0, truncated: true }),
    ).toContain("lower bound");
  });

  it("[REP6] a file that grew or went since it was listed harms nobody", async () => {
    const listed = [
      { path: "empty.txt", bytes: 0 },
      { path: "gone.txt", bytes: 10 },
      { path: "link.txt", bytes: 10 },
      { path: "src", bytes: 10 },
    ];
    const texts = await readTexts(repo, listed, never);
    expect(texts.files.map((file) => file.path)).toEqual(["empty.txt"]);
    expect(texts.unreadable).toBe(3);
  });

  it("[REP7] stops at once when aborted", async () => {
    const aborted = AbortSignal.abort(new Error("stop"));
    await expect(walkFolder(repo, aborted)).rejects.toThrow("stop");
    await expect(readTexts(repo, [{ path: "README.md", bytes: 1 }], aborted)).rejects.toThrow(
      "stop",
    );
    await expect(gitHistory({ folder: repo, root, searchPath, signal: aborted })).rejects.toThrow(
      "stop",
    );
  });

  it("[REP6] counts lines with and without a final newline", () => {
    expect(["", "a", "a\n", "a\nb", "\n\n"].map((text) => countLines(Buffer.from(text)))).toEqual([
      0, 1, 1, 2, 2,
    ]);
  });
});

describe("git history", () => {
  it("[REP8] is not read from a repository above the root, nor from one that points outside", async () => {
    const inner = join(repo, "src", "deep");
    const above = await gitHistory({ folder: inner, root: inner, searchPath, signal: never });
    expect(above).toMatchObject({ kind: "none", why: /not in a git repository/ });
    const pointing = join(root, "pointing");
    mkdirSync(pointing);
    writeFileSync(join(pointing, ".git"), `gitdir: ${join(repo, ".git")}\n`);
    const outside = await gitHistory({
      folder: pointing,
      root: pointing,
      searchPath,
      signal: never,
    });
    expect(outside).toMatchObject({ kind: "none", why: /outside the allowed folder/ });
  });

  it("[REP8] runs nothing that the repository's own configuration names", async () => {
    const script = (name: string, body: string): string => {
      writeFileSync(join(root, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
      return join(root, name);
    };
    // A commit that claims to be signed: with log.showSignature git asks gpg.program about it.
    const signature = "-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n";
    const sign = `cat > /dev/null; echo "[GNUPG:] SIG_CREATED x" >&2; printf -- '${signature}'`;
    writeFileSync(join(repo, "signed.txt"), "");
    git("add", "signed.txt");
    git(
      "-c",
      `gpg.program=${script("sign.sh", sign)}`,
      "commit",

      "-S",
      "-m",
      "Signed",
    );
    const sprung = join(root, "sprung");
    const trap = script("trap.sh", `touch ${sprung}`);
    for (const name of [
      "core.fsmonitor",
      "core.pager",
      "gpg.program",
      "diff.external",
      "core.sshCommand",
    ]) {
      git("config", name, trap);
    }
    git("config", "log.showSignature", "true");
    const history = await gitHistory({ folder: repo, root, searchPath, signal: never });
    expect(history).toMatchObject({ kind: "history", total: 3 });
    expect(JSON.stringify(history)).toContain("Add the rest");
    expect(existsSync(sprung)).toBe(false);
  });

  it("[REP8] where there is none, or no git, the report says so", async () => {
    const plain = join(root, "plain");
    mkdirSync(plain);
    expect(await gitHistory({ folder: plain, root, searchPath, signal: never })).toMatchObject({
      kind: "none",
    });
    expect(await gitHistory({ folder: repo, root, searchPath: "/nowhere", signal: never })).toEqual(
      {
        kind: "none",
        why: "git is not installed here",
      },
    );
  });

  it("[REP9] what files and commits are called cannot break the report's Markdown", () => {
    const [commit] = parseLog("abc\t2026-01-01\tA|b\t<img> *x* `y`\tz\n");
    expect(commit?.subject).toBe("<img> *x* `y` z");
    const text = renderTodos({
      count: 1,
      first: [{ path: "a`b\n|c", line: 1, tag: "TODO", text: "](x) <b>" }],
    });
    expect(text.split("\n").filter((line) => line.startsWith("*"))).toEqual([
      "* `a'b \\|c:1` TODO \\](x) \\<b\\>",
    ]);
  });
});
