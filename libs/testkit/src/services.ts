/** Launchers of our own services, as they run in production: from dist, in a process of their own. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type LaunchedProcess, extend, launch } from "./child.ts";
import { freePort } from "./ports.ts";

export interface ServiceOptions {
  /** As TL_NATS_URL takes it. */
  natsUrl: string;
  redisUrl?: string;
  nodeId?: string;
  /** Further TL_* variables; they win. */
  env?: Record<string, string>;
  /** What runs it, instead of the Node that runs the test: a program and its first arguments. */
  node?: readonly [string, ...string[]];
}

export interface EdgeOptions extends ServiceOptions {
  port?: number;
  /** A port that several edges listen on together. */
  sharedPort?: number;
}

export interface Service extends LaunchedProcess {
  /** `http://127.0.0.1:<admin port>` */
  readonly adminUrl: string;
  readonly nodeId: string;
  /** Kills it. */
  readonly dispose: () => Promise<void>;
}

export interface Edge extends Service {
  readonly port: number;
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** `ws://127.0.0.1:<port>/v1/connect` */
  readonly connectUrl: string;
}

/** Starts an edge with dev tokens allowed; resolves when `/readyz` says yes. */
export async function startEdge(options: EdgeOptions): Promise<Edge> {
  const port = options.port ?? (await freePort());
  const service = await startService("edge", options, {
    TL_PORT: `${port}`,
    ...(options.sharedPort === undefined ? {} : { TL_SHARED_PORT: `${options.sharedPort}` }),
  });
  const url = `http://127.0.0.1:${port}`;
  return extend(service, { port, url, connectUrl: `ws://127.0.0.1:${port}/v1/connect` });
}

export interface RuntimeOptions extends ServiceOptions {
  /** Folders that agents may read. */
  allowedRoots?: string[];
  /** How long a silent worker keeps a run. Short, so that a test of takeover is. */
  ackWaitMs?: number;
}

/** Starts a runtime worker; resolves when `/readyz` says yes. */
export function startRuntime(options: RuntimeOptions): Promise<Service> {
  return startService("runtime", options, {
    TL_ALLOWED_ROOTS: (options.allowedRoots ?? []).join(":"),
    TL_ACK_WAIT_MS: `${options.ackWaitMs ?? 2000}`,
  });
}

export interface ScriptOptions extends ServiceOptions {
  /** The program: it listens on TL_ADMIN_PORT and answers `/readyz` with 200 once it is ready. */
  file: string;
}

/** Starts a test's own program as a service, e.g. a worker with the test's agents; resolves when `/readyz` says yes. */
export function startScript({ file, ...options }: ScriptOptions): Promise<Service> {
  return startProgram("script", file, options, {});
}

let started = 0;

async function startService(
  kind: "edge" | "runtime",
  options: ServiceOptions,
  own: Record<string, string>,
): Promise<Service> {
  const main = fileURLToPath(new URL(`../../../services/${kind}/dist/main.js`, import.meta.url));
  if (!existsSync(main))
    throw new Error(`services/${kind} is not built: run "npm run build" first`);
  return startProgram(kind, main, options, own);
}

async function startProgram(
  kind: string,
  main: string,
  options: ServiceOptions,
  own: Record<string, string>,
): Promise<Service> {
  const nodeId = options.nodeId ?? `${kind}-${++started}`;
  const adminPort = await freePort();
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  const [command, ...args] = options.node ?? [globalThis.process.execPath];
  const process = await launch({
    name: nodeId,
    command,
    args: [...args, "--enable-source-maps", main],
    env: {
      ...inheritedEnv(),
      TL_HOST: "127.0.0.1",
      TL_ADMIN_HOST: "127.0.0.1",
      TL_ADMIN_PORT: `${adminPort}`,
      TL_NATS_URL: options.natsUrl,
      ...(options.redisUrl === undefined ? {} : { TL_REDIS_URL: options.redisUrl }),
      TL_NODE_ID: nodeId,
      TL_DEV_TOKENS: "1",
      ...own,
      ...options.env,
    },
    ready: async () =>
      (await fetch(`${adminUrl}/readyz`, { signal: AbortSignal.timeout(1000) })).ok,
    readyTimeoutMs: 30_000,
  });
  const dispose = async (): Promise<void> => {
    await process.kill();
  };
  return extend(process, { adminUrl, nodeId, dispose });
}

/** Ours without TL_*: what a developer has set for `npm start` must not leak into a test. */
function inheritedEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith("TL_")),
  );
}
