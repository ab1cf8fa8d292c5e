/** Reads a folder's text files once and keeps only figures: lines, and the notes that people leave to themselves. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { type FileEntry, isExpected } from "./walk.ts";

export interface TextFile {
  readonly path: string;
  readonly bytes: number;
  readonly lines: number;
}

export interface Todo {
  readonly path: string;
  readonly line: number;
  readonly tag: string;
  readonly text: string;
}

export interface Texts {
  readonly files: readonly TextFile[];
  readonly binary: number;
  /** Over `maxFileBytes`: named by size only. */
  readonly huge: number;
  readonly unreadable: number;
  readonly todos: readonly Todo[];
  /** Counts all, also those beyond `maxTodos`. */
  readonly todoCount: number;
  readonly truncated: boolean;
}

export interface ReadBounds {
  readonly maxFileBytes: number;
  readonly maxTotalBytes: number;
  readonly maxTodos: number;
}

/** Sources are below 1 MiB; 512 MiB take a few seconds from a warm cache. */
const READ_BOUNDS: ReadBounds = {
  maxFileBytes: 1024 * 1024,
  maxTotalBytes: 512 * 1024 * 1024,
  maxTodos: 100,
};

/** Git's own rule: a NUL in the first 8,000 bytes is a binary file. */
const PROBE_BYTES = 8000;
const TODO = /\b(TODO|FIXME|HACK|XXX)\b[(:\s-]*(.{0,120})/;
const NEWLINE = 0x0a;

/** Rejects with the signal's reason when aborted. */
export async function readTexts(
  root: string,
  files: readonly FileEntry[],
  signal: AbortSignal,
  bounds: ReadBounds = READ_BOUNDS,
): Promise<Texts> {
  const texts: TextFile[] = [];
  const todos: Todo[] = [];
  const counts = { binary: 0, huge: 0, unreadable: 0, todos: 0 };
  let total = 0;
  let truncated = false;
  for (const file of files) {
    signal.throwIfAborted();
    if (file.bytes > bounds.maxFileBytes) {
      counts.huge++;
      continue;
    }
    if (total + file.bytes > bounds.maxTotalBytes) {
      truncated = true;
      break;
    }
    const body = await readWhole(join(root, file.path), bounds.maxFileBytes);
    if (body === undefined) {
      counts.unreadable++;
      continue;
    }
    total += body.length;
    if (body.subarray(0, PROBE_BYTES).includes(0)) {
      counts.binary++;
      continue;
    }
    texts.push({ path: file.path, bytes: body.length, lines: countLines(body) });
    for (const todo of findTodos(file.path, body)) {
      counts.todos++;
      if (todos.length < bounds.maxTodos) todos.push(todo);
    }
  }
  return {
    files: texts,
    binary: counts.binary,
    huge: counts.huge,
    unreadable: counts.unreadable,
    todos,
    todoCount: counts.todos,
    truncated,
  };
}

/** At most `limit` bytes: the file may have grown since it was listed. Never through a link, never blocking on a pipe. */
async function readWhole(path: string, limit: number): Promise<Buffer | undefined> {
  try {
    const handle = await open(
      path,
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    );
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return undefined;
      const buffer = Buffer.allocUnsafe(Math.min(stat.size, limit));
      let filled = 0;
      while (filled < buffer.length) {
        const { bytesRead } = await handle.read(buffer, filled, buffer.length - filled, filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return buffer.subarray(0, filled);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (isExpected(error)) return undefined;
    throw error;
  }
}

export function countLines(body: Buffer): number {
  let lines = 0;
  for (let at = body.indexOf(NEWLINE); at !== -1; at = body.indexOf(NEWLINE, at + 1)) lines++;
  return body.length > 0 && body.at(-1) !== NEWLINE ? lines + 1 : lines;
}

function* findTodos(path: string, body: Buffer): Generator<Todo> {
  // Most files have none: look at the bytes before making strings of them.
  if (!["TODO", "FIXME", "HACK", "XXX"].some((tag) => body.includes(tag))) return;
  let line = 0;
  for (const text of body.toString("utf8").split("\n")) {
    line++;
    const found = TODO.exec(text);
    if (found?.[1] !== undefined) {
      yield { path, line, tag: found[1], text: (found[2] ?? "").trim() };
    }
  }
}
