/** A worker process's part in the system: it offers agents, takes runs of them and hosts those it has room for. */
import { randomBytes } from "node:crypto";
import {
  type Broker,
  openAgentDirectory,
  openRunQueue,
  openSweep,
  type RunClaim,
  type RunQueue,
  type RunRef,
  type Sweep,
} from "@throughline/broker";
import { isId } from "@throughline/protocol";
import type { Agent } from "./agent.ts";
import { type Log, logWith, SILENT } from "./log.ts";
import type { RunOutcome } from "./lifecycle.ts";
import { RunHost } from "./run-host.ts";
import { within } from "./within.ts";

export interface WorkerOptions {
  readonly broker: Broker;
  readonly agents: readonly Agent[];
  /** Runs hosted at a time (default 100). */
  readonly capacity?: number;
  /** After so long without a sign of life a run goes to another worker, in ms (default 30,000). */
  readonly ackWaitMs?: number;
  /** How long steps may take to end in a shutdown, in ms (default 10,000). */
  readonly graceMs?: number;
  /** A queued run whose agent nobody offers fails after this, in ms (default 10 min). */
  readonly queueTimeoutMs?: number;
  /** Names the process in logs and events (default `worker`); a random part is added. 1 to 40 of A-Z a-z 0-9 _ -. */
  readonly name?: string;
  readonly log?: Log;
  /** What only an operator can mend, such as a consumer that does not fit. */
  readonly onFatal?: (error: Error) => void;
  /** For metrics. */
  readonly events?: WorkerEvents;
}

export interface WorkerEvents {
  readonly claimed: (kind: RunClaim["kind"]) => void;
  readonly left: (how: RunOutcome) => void;
}

export interface Worker {
  /** Never used again: it stands in the log, and other workers ask by it whether its runs are alive. */
  readonly id: string;
  /** Runs in hand. */
  readonly active: number;
  /** Resolves when runs can be taken. Rejects with BrokerMisfit. */
  start(): Promise<void>;
  /** Takes no more runs, lets steps end within the grace, hands all runs back. */
  stop(): Promise<void>;
}

const MAX_NAME = 40;
const TICK_MS = 1_000;
/** For NATS to confirm the end of pulls and offers. When it is away they lapse by themselves. */
const WITHDRAW_MS = 3_000;

type State =
  | { readonly kind: "made" }
  | {
      readonly kind: "started";
      readonly queue: RunQueue;
      readonly offers: readonly { stop(): Promise<void> }[];
      readonly sweep: Sweep;
      readonly timer: NodeJS.Timeout;
    }
  | { readonly kind: "stopped" };

/** Throws TypeError for two agents of one name, or a name that could not be part of a subject. */
export function createWorker(options: WorkerOptions): Worker {
  const { broker, capacity = 100, ackWaitMs = 30_000, graceMs = 10_000 } = options;
  const { name = "worker", queueTimeoutMs = 600_000 } = options;
  if (!isId(name) || name.length > MAX_NAME)
    throw new TypeError(`${JSON.stringify(name)} is no worker name`);
  const id = `${name}-${randomBytes(6).toString("base64url")}`;
  const log = logWith(options.log ?? SILENT, { worker: id });
  const agents = new Map(options.agents.map((agent) => [agent.name, agent]));
  if (agents.size !== options.agents.length) throw new TypeError("two agents have the same name");
  const hosts = new Map<string, RunHost>();
  let state: State = { kind: "made" };

  const take = (claim: RunClaim): void => {
    const agent = agents.get(claim.agent);
    if (!agent) throw new Error(`no agent ${claim.agent} here`);
    const key = hostKey(claim.ref, claim.epoch);
    const { tenant, session, run } = claim.ref;
    const host = new RunHost({
      broker,
      claim,
      agent,
      worker: id,
      log: logWith(log, { tenant, session, run, agent: agent.name }),
    });
    hosts.set(key, host);
    options.events?.claimed(claim.kind);
    void host.done.then((how) => {
      options.events?.left(how);
      if (hosts.get(key) === host) hosts.delete(key);
      if (state.kind === "started") state.queue.wake();
    });
    if (state.kind !== "started") host.handBack();
  };

  const warn = (text: string, cause?: unknown): void => log.warn({ err: cause }, text);
  const fatal = (error: Error): void => {
    log.error({ err: error }, "runs cannot be taken");
    options.onFatal?.(error);
  };

  return {
    id,
    get active() {
      return hosts.size;
    },
    async start() {
      if (state.kind !== "made") throw new Error("a worker is started once");
      const queue = openRunQueue(broker, {
        agent: [...agents.keys()],
        worker: id,
        room: () => capacity - hosts.size,
        ackWaitMs,
        onRun: take,
        owns: (ref, epoch) => hosts.get(hostKey(ref, epoch))?.holds ?? false,
        onWarning: warn,
        onFatal: fatal,
      });
      const directory = openAgentDirectory(broker, { onWarning: warn });
      const offers = options.agents.map(({ name: agent, description, examples }) =>
        directory.announce({ agent, description, examples, worker: id }),
      );
      const sweep = openSweep(broker, {
        worker: id,
        queueTimeoutMs,
        ackWaitMs,
        agents: directory,
        onWarning: warn,
        onFatal: fatal,
      });
      const timer = setInterval(() => {
        const now = performance.now();
        for (const host of hosts.values()) host.tick(now);
      }, TICK_MS);
      state = { kind: "started", queue, offers, sweep, timer };
      await Promise.all([queue.ready, sweep.ready]);
    },
    async stop() {
      if (state.kind !== "started") return;
      const { queue, offers, sweep, timer } = state;
      state = { kind: "stopped" };
      for (const host of hosts.values()) host.drain();
      const withdrawn = within(
        graceMs + WITHDRAW_MS,
        Promise.all([queue.stop(), sweep.stop(), ...offers.map((offer) => offer.stop())]),
      ).catch((error: unknown) => {
        log.warn({ err: error }, "this worker could not withdraw");
        return true;
      });
      const left = (): Promise<unknown> =>
        Promise.all([...hosts.values()].map((host) => host.done));
      if (!(await within(graceMs, left()))) {
        log.warn(
          { runs: hosts.size },
          "steps did not end within the grace: their runs are handed back",
        );
        for (const host of hosts.values()) host.handBack();
        await left();
      }
      clearInterval(timer);
      if (!(await withdrawn))
        log.warn({}, "NATS did not confirm in time that this worker takes no more runs");
    },
  };
}

function hostKey(ref: RunRef, epoch: string): string {
  return `${ref.tenant}.${ref.session}.${ref.run}.${epoch}`;
}
