/**
 * The three ways to obtain a nats-server into the project's cache folder. Each works in a scratch folder
 * beside it and moves the binary into place as its last step, so that a broken-off one leaves nothing.
 */
import { createHash } from "node:crypto";
import {
  accessSync,
  chmodSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { run } from "./terminal.mjs";
import { aptSources, sidConfiguration } from "./apt-scratch.mjs";

/** @typedef {import("./nats.mjs").Way} Way */

export const WANTED = "2.15.2";
const MODULE = `github.com/nats-io/nats-server/v2@v${WANTED}`;
const RELEASE = `https://github.com/nats-io/nats-server/releases/download/v${WANTED}`;
const RELEASED_OS = ["linux", "darwin"];
const RELEASED_ARCH = new Map([
  ["x64", "amd64"],
  ["arm64", "arm64"],
]);
const DOWNLOAD_TIMEOUT_MS = 120_000;

/** `go install` with GOBIN set to a scratch folder. @type {Way["attempt"]} */
export async function byGo({ env, cache, progress }) {
  if (!(await exists("go", ["version"], env))) return { why: "Go is not installed" };
  return inScratch(cache, async (scratch) => {
    const options = { env: { ...env, GOBIN: scratch }, timeoutMs: 600_000 };
    await progress(`building nats-server ${WANTED} with Go (a minute or two)`, () =>
      must("go", ["install", MODULE], options),
    );
    return join(scratch, "nats-server");
  });
}

/** The official release, checked against the checksum file published with it. @type {Way["attempt"]} */
export async function byRelease({ cache, progress }) {
  const os = RELEASED_OS.find((name) => name === process.platform);
  const arch = RELEASED_ARCH.get(process.arch);
  if (os === undefined || arch === undefined)
    return { why: `no release for ${process.platform} ${process.arch}` };
  const name = `nats-server-v${WANTED}-${os}-${arch}`;
  const archive = `${name}.tar.gz`;
  return inScratch(cache, async (scratch) => {
    const [bytes, sums] = await progress(`downloading ${archive}`, () =>
      Promise.all([download(`${RELEASE}/${archive}`), download(`${RELEASE}/SHA256SUMS`)]),
    );
    const why = checksumProblem(archive, bytes, sums.toString());
    if (why !== undefined) return { why };
    const file = join(scratch, archive);
    await writeFile(file, bytes);
    await must("tar", ["-xzf", file, "-C", scratch]);
    return join(scratch, name, "nats-server");
  });
}

/**
 * Why a downloaded file must not be used; `undefined` when it is the one that the checksum file names.
 *
 * @param {string} name
 * @param {Buffer} bytes
 * @param {string} sums lines of `<sha256>  <name>`
 */
export function checksumProblem(name, bytes, sums) {
  const listed = sums
    .split("\n")
    .map((line) => line.trim().split(/\s+\*?/))
    .find(([, file]) => file === name)?.[0];
  if (listed === undefined) return `the release's checksum file does not list ${name}`;
  const actual = createHash("sha256").update(bytes).digest("hex");
  return actual === listed.toLowerCase()
    ? undefined
    : `${name} has checksum ${actual}, the release says ${listed}`;
}

/**
 * Debian's package of its newest suite, fetched with a configuration of apt's own making: neither the
 * system's lists nor its packages change. apt checks the suite's signature. @type {Way["attempt"]}
 */
export async function bySid({ env, cache, progress }) {
  if (!/^ID=debian$/m.test(readIfThere("/etc/os-release"))) return { why: "this is not Debian" };
  const mirror = aptSources().find((source) => source.isDebian);
  if (mirror === undefined) return { why: "apt's sources name no Debian mirror" };
  return inScratch(cache, async (scratch) => {
    const apt = ["-c", sidConfiguration(scratch, mirror), "-qq"];
    const options = { cwd: scratch, env, timeoutMs: 300_000 };
    await progress("fetching nats-server from Debian's newest suite", async () => {
      await must("apt-get", [...apt, "update"], options);
      await must("apt-get", [...apt, "download", "nats-server"], options);
    });
    await must("sh", ["-c", "dpkg-deb -x nats-server_*.deb package"], options);
    return join(scratch, "package/usr/sbin/nats-server");
  });
}

/**
 * Runs `work` in a scratch folder and moves the binary that it names to the cache.
 *
 * @param {string} cache
 * @param {(scratch: string) => Promise<string | { why: string }>} work
 * @returns {Promise<{ path: string } | { why: string }>}
 */
async function inScratch(cache, work) {
  mkdirSync(cache, { recursive: true });
  const scratch = mkdtempSync(join(cache, "obtaining-"));
  const remove = () => rmSync(scratch, { recursive: true, force: true });
  process.once("exit", remove); // a Ctrl-C meanwhile runs no `finally`
  try {
    const made = await work(scratch);
    if (typeof made !== "string") return made;
    const path = join(cache, "nats-server");
    chmodSync(made, 0o755);
    renameSync(made, path);
    return { path };
  } finally {
    process.removeListener("exit", remove);
    remove();
  }
}

/** @param {string} url */
async function download(url) {
  const answer = await fetch(url, { signal: AbortSignal.timeout(DOWNLOAD_TIMEOUT_MS) });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  return Buffer.from(await answer.arrayBuffer());
}

/**
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} env
 */
async function exists(command, args, env) {
  try {
    return (await run(command, args, { env, timeoutMs: 20_000 })).code === 0;
  } catch {
    return false; // not there at all
  }
}

/** @param {string} path */
function readIfThere(path) {
  try {
    accessSync(path, constants.R_OK);
  } catch {
    return "";
  }
  return readFileSync(path, "utf8");
}

/**
 * Runs a program that must succeed; else throws the last line of what it said.
 *
 * @param {Parameters<typeof run>} command
 */
async function must(...command) {
  const { code, output } = await run(...command);
  if (code !== 0)
    throw new Error(output.trim().split("\n").at(-1) || `${command[0]} ended with code ${code}`);
}
