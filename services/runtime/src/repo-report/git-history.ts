/** Asks git for the recent history of a folder, without letting the repository's own configuration run anything. */
import { execFile } from "node:child_process";
import { realpath } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { errorCode, within } from "../roots.ts";

export interface Commit {
  readonly id: string;
  /** ISO date, without time. */
  readonly date: string;
  readonly author: string;
  readonly subject: string;
}

export type History =
  | { readonly kind: "history"; readonly commits: readonly Commit[]; readonly total: number }
  | { readonly kind: "none"; readonly why: string };

const RECENT = 15;
const TIMEOUT_MS = 10_000;
const MAX_OUTPUT = 1024 * 1024;
const MAX_SUBJECT = 160;

/**
 * A repository is untrusted input: its config can name programs to run (fsmonitor, pager, signature
 * check), hooks and remotes. Each is overruled here; nothing is fetched, and no lock is taken.
 */
const SAFE = [
  "--no-pager",
  "-c",
  "core.fsmonitor=false",
  "-c",
  "core.hooksPath=/dev/null",
  "-c",
  "protocol.allow=never",
];

export interface HistoryRequest {
  readonly folder: string;
  /** Bounds the search for the repository: a `.git` above it, or one that points outside, is not read. */
  readonly root: string;
  /** Where programs are looked for, as in PATH. */
  readonly searchPath: string;
  readonly signal: AbortSignal;
}

export async function gitHistory(request: HistoryRequest): Promise<History> {
  const { folder, root } = request;
  const git = (...args: string[]): Promise<GitAnswer> => runGit(request, args);
  const dirs = await git("rev-parse", "--absolute-git-dir", "--git-common-dir");
  if (!dirs.ok) return { kind: "none", why: dirs.why };
  for (const dir of dirs.output.split("\n").filter((line) => line !== "")) {
    const real = await realpath(resolve(folder, dir));
    if (!within(root, real))
      return { kind: "none", why: "the repository lies outside the allowed folder" };
  }
  const log = await git(
    "log",
    `--max-count=${RECENT}`,
    "--no-show-signature",
    "--no-color",
    "--date=short",
    "--format=%h%x09%ad%x09%an%x09%s",
    "--",
    ".",
  );
  if (!log.ok) return { kind: "none", why: log.why };
  const count = await git("rev-list", "--count", "HEAD", "--", ".");
  const commits = parseLog(log.output);
  return {
    kind: "history",
    commits,
    total: count.ok ? Number(count.output.trim()) : commits.length,
  };
}

export function parseLog(output: string): Commit[] {
  return output
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [id = "", date = "", author = "", ...subject] = line.split("\t");
      return { id, date, author, subject: subject.join(" ").slice(0, MAX_SUBJECT) };
    });
}

type GitAnswer = { ok: true; output: string } | { ok: false; why: string };

function runGit(request: HistoryRequest, args: string[]): Promise<GitAnswer> {
  const { folder, root, searchPath, signal } = request;
  return new Promise((settle, reject) => {
    execFile(
      "git",
      [...SAFE, ...args],
      {
        cwd: folder,
        signal,
        timeout: TIMEOUT_MS,
        maxBuffer: MAX_OUTPUT,
        env: {
          PATH: searchPath,
          LC_ALL: "C",
          GIT_CEILING_DIRECTORIES: dirname(root),
          GIT_CONFIG_NOSYSTEM: "1",
          GIT_CONFIG_GLOBAL: "/dev/null",
          GIT_OPTIONAL_LOCKS: "0",
          GIT_TERMINAL_PROMPT: "0",
          GIT_NO_LAZY_FETCH: "1",
        },
      },
      (error, stdout, stderr) => {
        if (signal.aborted) return reject(abortReason(signal));
        if (error === null) return settle({ ok: true, output: stdout });
        settle({ ok: false, why: reason(error, stderr) });
      },
    );
  });
}

function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error("aborted", { cause: reason });
}

function reason(error: Error, stderr: string): string {
  if (errorCode(error) === "ENOENT") return "git is not installed here";
  if (stderr.includes("not a git repository")) return "the folder is not in a git repository";
  if (stderr.includes("does not have any commits")) return "the repository has no commits yet";
  if (stderr.includes("dubious ownership")) return "git refuses a repository of another owner";
  return "git gave no answer";
}
