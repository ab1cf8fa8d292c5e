/** What the parts play on: a nats-server, an edge, and the processes that drive them. */
import { deriveRunId, deriveSessionId, type RunRef } from "@throughline/broker";
import {
  type Edge,
  freePort,
  type Methods,
  type NatsServer,
  type Role,
  startEdge,
  startNats,
  startRole,
} from "@throughline/testkit";
import type { CommanderMethods } from "./roles/commander.ts";
import type { HostMethods } from "./roles/host.ts";
import type { PublisherMethods } from "./roles/publisher.ts";
import type { ServerAddress, ViewersMethods } from "./roles/viewers.ts";

const TENANT = "bench";
const USER = "bench";
const TOKEN = `dev.${TENANT}.${USER}`;
/** Enough to spread the runs over the shards. */
const SESSIONS = 8;
const SESSION_COMMANDS: readonly string[] = Array.from(
  { length: SESSIONS },
  (_, i) => `bench-${i}`,
);

const LAST_WORDS = 2_000;

export interface Stage {
  readonly nats: NatsServer;
  readonly publisher: Role<PublisherMethods>;
  readonly viewers: Role<ViewersMethods>;
  readonly tenant: string;
  /** Runs that no other call has given. */
  runs(count: number): RunRef[];
  /** A fresh edge; the bench's sessions exist. */
  edge(): Promise<StagedEdge>;
  anotherViewers(): Role<ViewersMethods>;
  /** A worker process; whoever asked for it may stop it. */
  host(name: string): Role<HostMethods>;
  commander(): Role<CommanderMethods>;
  /** The end of the last edge's log, for whoever asks why something failed. */
  lastWords(): string;
  dispose(): Promise<void>;
}

export interface StagedEdge {
  readonly address: ServerAddress;
  readonly pid: number;
  /** Where its inspector listens; undefined without `profiled`. */
  readonly inspector: number | undefined;
  dispose(): Promise<void>;
}

export async function openStage(options: { readonly profiled: boolean }): Promise<Stage> {
  const ends: (() => unknown)[] = [];
  const dispose = async (): Promise<void> => {
    for (const end of ends.splice(0).reverse()) await end();
  };
  const started = <M extends Methods>(file: string, name = file): Role<M> => {
    const role = startRole<M>(new URL(`./roles/${file}.js`, import.meta.url), name);
    ends.push(() => role.stop());
    return role;
  };
  try {
    const nats = await startNats();
    ends.push(() => nats.dispose());
    const publisher = started<PublisherMethods>("publisher");
    await publisher.ask("open", { natsUrl: nats.url });
    const viewers = started<ViewersMethods>("viewers");
    let given = 0;
    let words = (): string => "";
    return {
      nats,
      publisher,
      viewers,
      tenant: TENANT,
      runs: (count) => Array.from({ length: count }, () => runRef(given++)),
      edge: async () => {
        const inspector = options.profiled ? await freePort() : undefined;
        const edge = await startEdge({
          natsUrl: nats.url,
          ...(inspector === undefined
            ? {}
            : { env: { NODE_OPTIONS: `--inspect=127.0.0.1:${inspector}` } }),
        });
        ends.push(() => edge.dispose());
        words = () => edge.logs().slice(-LAST_WORDS);
        const staged = stagedEdge(edge, inspector);
        await viewers.ask("createSessions", {
          server: staged.address,
          commandIds: SESSION_COMMANDS,
        });
        return staged;
      },
      anotherViewers: () => started<ViewersMethods>("viewers", "more viewers"),
      host: (name) => started<HostMethods>("host", name),
      commander: () => started<CommanderMethods>("commander"),
      lastWords: () => words(),
      dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

function stagedEdge(edge: Edge, inspector: number | undefined): StagedEdge {
  return {
    address: { port: edge.port, token: TOKEN },
    pid: edge.pid,
    inspector,
    dispose: edge.dispose,
  };
}

/** Ids as the edge would derive them, so that frames have the size of real ones. */
function runRef(i: number): RunRef {
  const id = SESSION_COMMANDS[i % SESSIONS] ?? "";
  const session = deriveSessionId({ tenant: TENANT, user: USER, id });
  return {
    tenant: TENANT,
    session,
    run: deriveRunId({ tenant: TENANT, user: USER, session, id: `run-${i}` }),
  };
}
