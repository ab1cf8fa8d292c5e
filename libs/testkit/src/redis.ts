import { connect } from "node:net";
import { type LaunchedProcess, extend, launch } from "./child.ts";
import { freePort } from "./ports.ts";
import { removeDir, tempDir } from "./reaper.ts";

export interface RedisServer extends LaunchedProcess {
  /** `redis://127.0.0.1:<port>` */
  readonly url: string;
  readonly port: number;
  /** Kills it and removes its folder. */
  readonly dispose: () => Promise<void>;
}

/** A real redis-server from PATH, empty, without persistence. */
export async function startRedis(
  options: { port?: number; args?: string[] } = {},
): Promise<RedisServer> {
  const dir = tempDir("redis");
  const port = options.port ?? (await freePort());
  const process = await launch({
    name: "redis-server",
    command: "redis-server",
    args: [
      "--port",
      `${port}`,
      "--bind",
      "127.0.0.1",
      "--save",
      "",
      "--dir",
      dir,
      ...(options.args ?? []),
    ],
    ready: () => pings(port),
  });
  const dispose = async (): Promise<void> => {
    await process.kill();
    removeDir(dir);
  };
  return extend(process, { url: `redis://127.0.0.1:${port}`, port, dispose });
}

function pings(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.once("error", reject);
    socket.once("data", (reply) => {
      socket.destroy();
      resolve(reply.toString().startsWith("+PONG"));
    });
  });
}
