/**
 * Hands processes and temporary folders to a reaper process, so that none outlives this one.
 *
 * Exit hooks are not enough: a vitest worker that is killed, or crashes in native code, runs none.
 * The reaper holds the other end of a pipe; the kernel closes ours whatever happens to us.
 */
import { spawn } from "node:child_process";
import type { Writable } from "node:stream";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const SCRIPT = fileURLToPath(new URL("../../../deploy/local/reaper.mjs", import.meta.url));

let pipe: Writable | undefined;

function tell(line: string): void {
  if (pipe === undefined) {
    const reaper = spawn(process.execPath, [SCRIPT], {
      detached: true,
      stdio: ["pipe", "ignore", "inherit"],
    });
    reaper.unref();
    pipe = reaper.stdin;
    // Neither side keeps a script alive whose work is done.
    (reaper.stdin as Writable & { unref?: () => void }).unref?.();
  }
  pipe.write(`${line}\n`);
}

/** From now on the process group led by `pid` ends when this process does. */
export function guard(pid: number): void {
  tell(`start ${pid}`);
}

/** The process has ended; its number may be given to another one. */
export function unguard(pid: number): void {
  tell(`gone ${pid}`);
}

/** A fresh folder, removed when this process ends or by {@link removeDir}. `TL_KEEP=1` keeps them all. */
export function tempDir(purpose: string): string {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), `throughline-${purpose}-`)));
  if (!process.env["TL_KEEP"]) tell(`dir ${dir}`);
  return dir;
}

export function removeDir(dir: string): void {
  if (process.env["TL_KEEP"]) return;
  rmSync(dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  tell(`kept ${dir}`);
}
