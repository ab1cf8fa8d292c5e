import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadUws } from "../src/transport/uws.ts";

/** A build of uWebSockets, and the Node that loads it here; undefined: the one that runs the tests. */
export interface UwsBuild {
  readonly name: "older" | "current";
  readonly node: readonly [string, ...string[]] | undefined;
}

/** Of Debian 13 or newer, unpacked: the current build needs glibc 2.38. */
const LIBRARIES =
  process.env["TL_GLIBC"] ?? fileURLToPath(new URL("../../../.throughline/glibc", import.meta.url));
const LOADER = `${LIBRARIES}/ld-linux-x86-64.so.2`;

/**
 * The build that an edge takes on this machine; and, where that is the older one and the libraries of a newer
 * system lie in `TL_GLIBC` or `.throughline/glibc`, the current one too.
 */
export function uwsBuilds(): readonly UwsBuild[] {
  const name = loadUws().build.includes("current") ? "current" : "older";
  const own: UwsBuild = { name, node: undefined };
  if (name === "current") return [own];
  if (!existsSync(LOADER)) {
    console.log(
      `only the older build of uWebSockets is tried: there is no ${LOADER} (node deploy/local/glibc.mjs)`,
    );
    return [own];
  }
  const path = `${LIBRARIES}:/usr/lib/x86_64-linux-gnu`;
  return [own, { name: "current", node: [LOADER, "--library-path", path, process.execPath] }];
}
