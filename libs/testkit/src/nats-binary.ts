import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Batched Direct Get came with 2.11, and on 2.9 the fence does not hold. */
const MINIMUM = [2, 11] as const;
const CACHE = fileURLToPath(new URL("../../../.throughline/bin", import.meta.url));

let found: string | undefined;

/**
 * The nats-server to test with: `NATS_SERVER`, else the first on PATH, in the project's cache folder or
 * in ~/go/bin that is new enough. `npm test` has obtained one before this is asked.
 */
export function natsServerBinary(): string {
  found ??= find();
  return found;
}

function find(): string {
  const named = process.env["NATS_SERVER"];
  const folders = [
    ...(process.env["PATH"] ?? "").split(delimiter),
    CACHE,
    join(homedir(), "go", "bin"),
  ];
  const candidates = named
    ? [named]
    : folders.filter(Boolean).map((dir) => join(dir, "nats-server"));
  const passedOver: string[] = [];
  for (const path of candidates) {
    if (!isExecutable(path)) continue;
    const version = versionOf(path);
    if (version !== undefined && isEnough(version)) return path;
    passedOver.push(`${path} is ${version?.join(".") ?? "not a nats-server"}`);
  }
  const notes = passedOver.length > 0 ? ` (passed over: ${passedOver.join("; ")})` : "";
  throw new Error(
    `no nats-server ${MINIMUM.join(".")} or newer found${notes}. "npm test" obtains one, or name yours in NATS_SERVER.`,
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function versionOf(path: string): number[] | undefined {
  const match = /v(\d+)\.(\d+)\.(\d+)/.exec(
    spawnSync(path, ["--version"], { encoding: "utf8" }).stdout ?? "",
  );
  return match?.slice(1).map(Number);
}

function isEnough([major = 0, minor = 0]: number[]): boolean {
  return major > MINIMUM[0] || (major === MINIMUM[0] && minor >= MINIMUM[1]);
}
