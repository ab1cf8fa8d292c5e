/** Real load balancers, in front of whatever a test starts behind them. */
import { existsSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { delimiter, join } from "node:path";
import { type LaunchedProcess, extend, launch } from "./child.ts";
import { freePort } from "./ports.ts";
import { removeDir, tempDir } from "./reaper.ts";

export interface LoadBalancer extends LaunchedProcess {
  readonly port: number;
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** Where it keeps what it has no room for in memory. */
  readonly dir: string;
  /** Ends it and removes its folder. */
  readonly dispose: () => Promise<void>;
}

/** The configuration for the loopback port that the load balancer is to listen on. */
export type MakeConfig = (port: number) => string;

/** A real nginx from PATH. `config` is what stands inside `http`: servers, upstreams, maps. */
export function startNginx(config: MakeConfig): Promise<LoadBalancer> {
  return start("nginx", config, (dir, http) => {
    const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    const main = [
      // As root it would drop to a user who may not enter the folder.
      process.getuid?.() === 0 ? "user root;" : "",
      "daemon off;",
      "worker_processes 2;",
      "worker_rlimit_nofile 20000;",
      `pid ${join(dir, "nginx.pid")};`,
      "error_log stderr notice;",
      "events { worker_connections 9000; }",
      "http {",
      "access_log off;",
      ...folders.map((name) => `${name}_temp_path ${join(dir, name)};`),
      http,
      "}",
    ];
    const file = join(dir, "nginx.conf");
    writeFileSync(file, main.join("\n"));
    return ["-e", "stderr", "-p", dir, "-c", file];
  });
}

/** A real HAProxy from PATH. `config` is the whole file. */
export function startHaproxy(config: MakeConfig): Promise<LoadBalancer> {
  return start("haproxy", config, (dir, text) => {
    const file = join(dir, "haproxy.cfg");
    writeFileSync(file, text);
    return ["-db", "-f", file];
  });
}

async function start(
  name: "nginx" | "haproxy",
  config: MakeConfig,
  prepare: (dir: string, config: string) => string[],
): Promise<LoadBalancer> {
  const command = binary(name);
  const dir = tempDir(name);
  const port = await freePort();
  const process = await launch({
    name,
    command,
    args: prepare(dir, config(port)),
    ready: () => accepts(port),
  });
  const dispose = async (): Promise<void> => {
    // By SIGTERM: nginx's worker processes would outlive a master that is killed.
    await process.stop();
    removeDir(dir);
  };
  return extend(process, { port, url: `http://127.0.0.1:${port}`, dir, dispose });
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", reject);
  });
}

function binary(name: string): string {
  // Debian puts servers where only root's PATH leads.
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin"];
  const found = folders.map((folder) => join(folder, name)).find((file) => existsSync(file));
  if (found !== undefined) return found;
  throw new Error(`${name} is not on PATH: install it, e.g. by "apt-get install ${name}"`);
}
