/** Is a port free, and who holds it? */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { run } from "./terminal.mjs";

const HOST = "127.0.0.1";

/** @param {number} port */
export async function isFree(port) {
  // Listening alone is no proof: macOS lets 127.0.0.1 be bound beside a listener on all addresses.
  return !(await answers(port)) && (await canListen(port));
}

/**
 * The first free one from `wanted` on, within the next hundred.
 *
 * @param {number} wanted
 */
export async function freePortFrom(wanted) {
  for (let port = wanted; port < wanted + 100; port++) if (await isFree(port)) return port;
  throw new Error(`no free port from ${wanted} to ${wanted + 99}`);
}

/**
 * One line for each port that is taken.
 *
 * @param {{ port: number, what: string }[]} wanted
 * @returns {Promise<string[]>}
 */
export async function taken(wanted) {
  const lines = [];
  for (const { port, what } of wanted) {
    if (await isFree(port)) continue;
    const holder = await holderOf(port);
    const by = holder === undefined ? "" : ` by "${holder.command}" (pid ${holder.pid})`;
    lines.push(`port ${port} (${what}) is taken${by}`);
  }
  return lines;
}

/**
 * Which process listens on a port; `undefined` where that can't be seen.
 *
 * @param {number} port
 * @returns {Promise<{ pid: number, command: string } | undefined>}
 */
export async function holderOf(port) {
  if (process.platform === "linux") return holderByProc(port);
  try {
    const { output } = await run("lsof", ["-nP", `-iTCP:${port}`, "-sTCP:LISTEN", "-Fpc"]);
    const [, pid, command = ""] = /p(\d+)\nc(.+)/.exec(output) ?? [];
    return pid === undefined ? undefined : { pid: Number(pid), command };
  } catch {
    return undefined; // no lsof: the port is named without its holder
  }
}

/** @param {number} port */
function holderByProc(port) {
  const inodes = new Set(
    ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((file) => listeningInodes(file, port)),
  );
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    if (descriptorsOf(pid).some((target) => inodes.has(target))) {
      const command = read(`/proc/${pid}/cmdline`).split("\0").filter(Boolean).join(" ");
      return {
        pid: Number(pid),
        command: command.length > 80 ? `${command.slice(0, 77)}...` : command,
      };
    }
  }
  return undefined;
}

/**
 * @param {string} file
 * @param {number} port
 */
function listeningInodes(file, port) {
  const LISTEN = "0A";
  return read(file)
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(
      ([, local, , state]) =>
        state === LISTEN && Number.parseInt(local?.split(":")[1] ?? "", 16) === port,
    )
    .map((fields) => `socket:[${fields[9]}]`);
}

/** @param {string} pid */
function descriptorsOf(pid) {
  const folder = `/proc/${pid}/fd`;
  return orElse([], () => readdirSync(folder)).map((fd) =>
    orElse("", () => readlinkSync(`${folder}/${fd}`)),
  );
}

/** @param {string} file */
function read(file) {
  return orElse("", () => readFileSync(file, "utf8"));
}

/**
 * What can't be read in /proc has ended or been closed meanwhile, or is another user's: no holder to name.
 *
 * @template T
 * @param {T} fallback
 * @param {() => T} look
 */
function orElse(fallback, look) {
  try {
    return look();
  } catch {
    return fallback;
  }
}

/** @param {number} port */
function answers(port) {
  return new Promise((/** @type {(answers: boolean) => void} */ resolve) => {
    const socket = connect(port, HOST);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** @param {number} port */
function canListen(port) {
  return new Promise((/** @type {(can: boolean) => void} */ resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: HOST, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
