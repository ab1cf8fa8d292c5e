/** Lists a folder's files, breadth first and in a stable order, within bounds. */
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../roots.ts";

export interface FileEntry {
  /** Relative to the folder, with `/`. */
  readonly path: string;
  readonly bytes: number;
}

export interface Walk {
  readonly files: readonly FileEntry[];
  readonly folders: number;
  /** Folders left out by name (.git, node_modules, dist, …), links, sockets, and what may not be read. */
  readonly skipped: number;
  /** A bound was reached: there is more than is listed. */
  readonly truncated: boolean;
}

export interface WalkBounds {
  readonly maxFiles: number;
  readonly maxDepth: number;
}

/** 50,000 entries of ~200 bytes are ~10 MB; deeper than 64 levels is a generated tree or a trap. */
const WALK_BOUNDS: WalkBounds = { maxFiles: 50_000, maxDepth: 64 };

/** Folders that hold what was fetched or built, not what was written. */
const LEFT_OUT = new Set([
  ...[".git", ".hg", ".svn", ".cache", ".next", ".throughline", ".venv"],
  ...["__pycache__", "build", "coverage", "dist", "node_modules", "target", "venv"],
]);

/** Rejects with the signal's reason when aborted. Unreadable parts are counted as skipped, not thrown. */
export async function walkFolder(
  root: string,
  signal: AbortSignal,
  bounds: WalkBounds = WALK_BOUNDS,
): Promise<Walk> {
  const files: FileEntry[] = [];
  let folders = 0;
  let skipped = 0;
  let level: string[] = [""];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > bounds.maxDepth) return { files, folders, skipped, truncated: true };
    const below: string[] = [];
    for (const folder of level) {
      signal.throwIfAborted();
      const entries = await list(join(root, folder));
      if (entries === undefined) {
        skipped++;
        continue;
      }
      folders++;
      for (const entry of entries) {
        const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
        if (entry.isDirectory()) {
          if (LEFT_OUT.has(entry.name)) skipped++;
          else below.push(path);
          continue;
        }
        // Links are not followed: they lead out of the folder or round in circles.
        const bytes = entry.isFile() ? await size(join(root, path)) : undefined;
        if (bytes === undefined) {
          skipped++;
          continue;
        }
        if (files.length >= bounds.maxFiles) return { files, folders, skipped, truncated: true };
        files.push({ path, bytes });
      }
    }
    level = below;
  }
  return { files, folders, skipped, truncated: false };
}

interface Entry {
  readonly name: string;
  isDirectory(): boolean;
  isFile(): boolean;
}

async function list(folder: string): Promise<Entry[] | undefined> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  } catch (error) {
    if (isExpected(error)) return undefined;
    throw error;
  }
}

async function size(path: string): Promise<number | undefined> {
  try {
    const stat = await lstat(path);
    return stat.isFile() ? stat.size : undefined;
  } catch (error) {
    if (isExpected(error)) return undefined;
    throw error;
  }
}

/** A tree changes while it is read, and parts of it may be closed to us. */
export function isExpected(error: unknown): boolean {
  const code = errorCode(error);
  return (
    code !== undefined && ["ENOENT", "ENOTDIR", "EACCES", "EPERM", "ELOOP", "ESTALE"].includes(code)
  );
}
