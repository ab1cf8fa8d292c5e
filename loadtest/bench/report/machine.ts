/** What a figure needs beside it to mean anything: where and of what it was measured. */
import { spawnSync } from "node:child_process";
import { cpus, loadavg, release, totalmem, type } from "node:os";

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly kernel: string;
  readonly node: string;
  readonly nats: string;
  /** Processes that wanted a core in the minute before: what else was going on. */
  readonly load: number;
}

/** How busy the machine is, to be asked before anything is measured. */
export function loadNow(): number {
  return Math.round((loadavg()[0] ?? 0) * 10) / 10;
}

export function machine(nats: string, load: number): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown CPU",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: `${type()} ${release()}`,
    node: process.versions.node,
    nats,
    load,
  };
}

/** The commit that is checked out, and whether the sources differ from it. */
export function commit(folder: string): string {
  const git = (...args: string[]): string =>
    spawnSync("git", ["-C", folder, ...args], { encoding: "utf8" }).stdout?.trim() ?? "";
  const hash = git("rev-parse", "--short=12", "HEAD");
  if (hash === "") return "unknown";
  const changed = git("status", "--porcelain", "--", "libs", "services", "loadtest/bench");
  return changed === "" ? hash : `${hash}, with uncommitted changes`;
}
