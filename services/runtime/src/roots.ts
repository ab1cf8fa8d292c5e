/** Where agents may read. What lies outside is answered alike whether it exists or not. */
import { realpath } from "node:fs/promises";
import { dirname, isAbsolute, relative, resolve, sep } from "node:path";
import { AgentError } from "@throughline/worker";

export interface AllowedPath {
  /** The real path, without symbolic links. */
  readonly path: string;
  /** The real path of the root that it lies in. */
  readonly root: string;
  /** How it is named to users: relative to the root's parent, so that no path of the host shows. */
  readonly label: string;
}

export interface Roots {
  readonly paths: readonly string[];
  /**
   * Finds a file or folder that a user named: absolute, or relative to one of the roots (the first that has it).
   * Throws AgentError `path_not_allowed` or `path_not_found`.
   */
  find(named: string): Promise<AllowedPath>;
}

/** Throws when a root does not exist: a typing error must not end in "nothing is allowed" much later. */
export async function openRoots(paths: readonly string[]): Promise<Roots> {
  const given = paths.map((path) => resolve(path));
  const real = await Promise.all(given.map((path) => realpath(path)));
  return {
    paths: real,
    find: async (named) => {
      if (named === "" || named.includes("\0")) throw notAllowed(named);
      const candidates = isAbsolute(named)
        ? [resolve(named)]
        : real.map((root) => resolve(root, named));
      let missing = false;
      for (const candidate of candidates) {
        if (![...real, ...given].some((root) => within(root, candidate))) continue;
        const found = await realOrAncestor(candidate);
        const root = real.find((one) => within(one, found.path));
        if (root === undefined) continue;
        if (found.exists) return { path: found.path, root, label: label(root, found.path) };
        missing = true;
      }
      if (missing) throw new AgentError("path_not_found", `there is no ${JSON.stringify(named)}`);
      throw notAllowed(named);
    },
  };
}

export function within(root: string, path: string): boolean {
  const way = relative(root, path);
  return way === "" || (way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}

function label(root: string, path: string): string {
  const way = relative(dirname(root), path);
  return way === "" ? root : way;
}

function notAllowed(named: string): AgentError {
  return new AgentError(
    "path_not_allowed",
    `${JSON.stringify(named)} is not in a folder that this installation allows (TL_ALLOWED_ROOTS)`,
  );
}

/** A link inside a root may lead out of it: of a missing path the nearest ancestor that exists is judged. */
async function realOrAncestor(path: string): Promise<{ path: string; exists: boolean }> {
  for (let at = path, exists = true; ; at = dirname(at), exists = false) {
    try {
      return { path: await realpath(at), exists };
    } catch (error) {
      const code = errorCode(error);
      if ((code !== "ENOENT" && code !== "ENOTDIR") || at === dirname(at)) {
        throw new AgentError(
          "path_unreadable",
          `the path can't be read (${code ?? "unknown reason"})`,
          {
            cause: error,
          },
        );
      }
    }
  }
}

/** `ENOENT` and the like; undefined where it is no system error. */
export function errorCode(error: unknown): string | undefined {
  if (error instanceof Error && "code" in error && typeof error.code === "string")
    return error.code;
  return undefined;
}
