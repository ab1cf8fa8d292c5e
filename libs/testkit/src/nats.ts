/** Real nats-servers with JetStream on disk: one, or a cluster joined by routes. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type LaunchedProcess, extend, launch } from "./child.ts";
import { eventually } from "./eventually.ts";
import { natsServerBinary } from "./nats-binary.ts";
import { freePort, freePorts } from "./ports.ts";
import { removeDir, tempDir } from "./reaper.ts";

export interface NatsOptions {
  port?: number;
  /** JetStream's folder; without it a temporary one, removed by `dispose`. */
  dir?: string;
  /** Further command line arguments. */
  args?: string[];
  /** Further lines of configuration. */
  config?: string;
}

export interface NatsServer extends LaunchedProcess {
  /** `nats://127.0.0.1:<port>` */
  readonly url: string;
  readonly port: number;
  readonly dir: string;
  /** What the server's own HTTP monitoring says, e.g. `monitor("/jsz?streams=true&accounts=true")`. */
  monitor(path: string): Promise<unknown>;
  /** Kills it and removes its temporary folder. */
  readonly dispose: () => Promise<void>;
}

export interface NatsCluster {
  readonly nodes: readonly NatsServer[];
  /** Comma separated, as TL_NATS_URL takes it. */
  readonly url: string;
  readonly urls: string[];
  /** The node that leads a stream just now; waits while there is none. */
  streamLeader(stream: string): Promise<NatsServer>;
  /** Resolves when all running nodes are healthy and agree on a leader of the metadata group. */
  settled(): Promise<void>;
  readonly dispose: () => Promise<void>;
}

export async function startNats(options: NatsOptions = {}): Promise<NatsServer> {
  return startNode("n1", options, options.port ?? (await freePort()), "");
}

/** Starts `size` nodes and waits until they have elected a leader of the metadata group. */
export async function startNatsCluster(
  size = 3,
  options: Omit<NatsOptions, "port" | "dir"> = {},
): Promise<NatsCluster> {
  const ports = await freePorts(size);
  const routes = await freePorts(size);
  const nodes = await Promise.all(
    ports.map((port, i) =>
      startNode(`n${i + 1}`, options, port, clusterConfig(routes[i] as number, routes)),
    ),
  );
  const settled = async (): Promise<void> => {
    const running = nodes.filter((node) => node.running);
    await eventually(
      async () => {
        await Promise.all(running.map((node) => node.monitor("/healthz")));
        const leaders = await Promise.all(running.map((node) => metaLeader(node, size)));
        return leaders.every((leader) => leader !== undefined && leader === leaders[0]);
      },
      { timeoutMs: 30_000, what: "the NATS cluster has elected its leader" },
    );
  };
  await settled();
  const urls = nodes.map((node) => node.url);
  return {
    nodes,
    urls,
    url: urls.join(","),
    settled,
    streamLeader: (stream) =>
      eventually(() => leaderOf(nodes, stream), {
        timeoutMs: 30_000,
        what: `stream ${stream} has a leader`,
      }),
    dispose: async () => {
      await Promise.all(nodes.map((node) => node.dispose()));
    },
  };
}

async function startNode(
  name: string,
  options: NatsOptions,
  port: number,
  cluster: string,
): Promise<NatsServer> {
  const dir = options.dir ?? tempDir("nats");
  const monitorPort = await freePort();
  const file = join(dir, "nats.conf");
  writeFileSync(
    file,
    [
      `server_name: ${name}`,
      `listen: "127.0.0.1:${port}"`,
      `http: "127.0.0.1:${monitorPort}"`,
      `jetstream { store_dir: ${JSON.stringify(dir)} }`,
      cluster,
      options.config ?? "",
    ].join("\n"),
  );
  const monitor = async (path: string): Promise<unknown> => {
    const answer = await fetch(`http://127.0.0.1:${monitorPort}${path}`, {
      signal: AbortSignal.timeout(2000),
    });
    if (!answer.ok)
      throw new Error(`${name}${path} answered ${answer.status}: ${await answer.text()}`);
    return answer.json();
  };
  const process = await launch({
    name,
    command: natsServerBinary(),
    args: ["-c", file, ...(options.args ?? [])],
    // In a cluster "healthy" needs a leader, hence other nodes; that is waited for once all have been started.
    ready: async () => (await monitor(cluster ? "/varz" : "/healthz")) !== undefined,
  });
  return extend(process, { url: `nats://127.0.0.1:${port}`, port, dir, monitor, dispose });

  async function dispose(): Promise<void> {
    await process.kill();
    if (options.dir === undefined) removeDir(dir);
  }
}

function clusterConfig(own: number, routes: number[]): string {
  const list = routes.map((port) => `"nats://127.0.0.1:${port}"`).join(", ");
  // Not advertised: a client that goes through a fault proxy must not learn the way around it.
  return `cluster { name: throughline-test, no_advertise: true, listen: "127.0.0.1:${own}", routes: [${list}] }`;
}

interface Jsz {
  meta_cluster?: { leader?: string; cluster_size?: number };
  account_details?: { stream_detail?: { name: string; cluster?: { leader?: string } }[] }[];
}

async function metaLeader(node: NatsServer, size: number): Promise<string | undefined> {
  const { meta_cluster: meta } = (await node.monitor("/jsz")) as Jsz;
  return meta?.cluster_size === size && meta.leader ? meta.leader : undefined;
}

/** Each node is asked about itself only: the others may still name a leader that is gone. */
async function leaderOf(
  nodes: readonly NatsServer[],
  stream: string,
): Promise<NatsServer | undefined> {
  const leads = await Promise.all(
    nodes.map(async (node) => {
      if (!node.running) return false;
      try {
        const { account_details: accounts } = (await node.monitor(
          "/jsz?accounts=true&streams=true",
        )) as Jsz;
        const details = accounts?.flatMap((account) => account.stream_detail ?? []);
        return details?.find((detail) => detail.name === stream)?.cluster?.leader === node.name;
      } catch {
        return false; // paused, or not yet up: it does not lead
      }
    }),
  );
  return nodes.find((_, i) => leads[i]);
}
