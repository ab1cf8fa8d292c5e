/** The worker process: hosts the agents. The only reader of environment and signals here. */
import { checkRetention, openBroker } from "@throughline/broker";
import {
  adminServer,
  ConfigError,
  createLogger,
  createMetrics,
  onSignals,
  watchEventLoop,
} from "@throughline/service-kit";
import { type Agent, createWorker } from "@throughline/worker";
import { type ModelEndpoint, readConfig, type RuntimeConfig } from "./config.ts";
import { llm } from "./llm/agent.ts";
import { openProvider } from "./llm/provider.ts";
import { openShell } from "./llm/shell.ts";
import { countRuns, gaugeWorker } from "./metrics.ts";
import { replay } from "./replay/agent.ts";
import { repoReport } from "./repo-report/agent.ts";
import { openRoots } from "./roots.ts";

/** Beyond the steps' own grace: for NATS to confirm what is handed back. */
const HAND_BACK_MS = 10_000;
/** A worker that cannot reach NATS for this long takes no runs; it need not be restarted for it. */
const READY_GRACE_MS = 5_000;

async function main(config: RuntimeConfig): Promise<void> {
  const node = config.TL_NODE_ID;
  const log = createLogger({ service: "runtime", node, level: config.TL_LOG_LEVEL });
  const metrics = createMetrics({ service: "runtime", node });
  watchEventLoop(metrics);
  const roots = await openRoots(config.TL_ALLOWED_ROOTS);
  if (roots.paths.length === 0)
    log.warn("TL_ALLOWED_ROOTS names no folder: agents may read nothing");

  const agents = [repoReport({ roots, searchPath: config.PATH }), replay({ roots })];
  if (config.endpoint !== undefined) agents.push(await llmOver(config.endpoint, config));
  else log.info("llm is not offered: it needs OPENAI_MODEL, and OPENAI_API_KEY or OPENAI_BASE_URL");

  const broker = await openBroker({
    servers: config.TL_NATS_URL,
    name: `runtime ${node}`,
    shards: config.TL_SHARDS,
    replicas: config.TL_REPLICAS,
    eventsMaxAgeMs: config.TL_EVENTS_MAX_AGE_MS,
    historyMaxAgeMs: config.TL_HISTORY_MAX_AGE_MS,
    adjust: true,
  });
  await checkRetention(broker, {
    deadlineMs: config.TL_DEADLINE_MS,
    allowShortRetention: config.TL_ALLOW_SHORT_RETENTION,
  });
  const worker = createWorker({
    broker,
    agents,
    name: node.slice(0, 40),
    capacity: config.TL_CAPACITY,
    ackWaitMs: config.TL_ACK_WAIT_MS,
    graceMs: config.TL_DRAIN_MS,
    queueTimeoutMs: config.TL_QUEUE_TIMEOUT_MS,
    log,
    events: countRuns(metrics),
    onFatal: (error) => void shutdown.begin(error.message, 1),
  });
  gaugeWorker(metrics, worker, config.TL_CAPACITY);

  let state: "starting" | "ready" | "stopping" = "starting";
  let downSince: number | undefined;
  broker.onConnection((connection) => {
    downSince = connection === "down" ? performance.now() : undefined;
    log[connection === "down" ? "warn" : "info"]({ connection }, "NATS");
  });
  const natsAway = (): boolean =>
    downSince !== undefined && performance.now() - downSince > READY_GRACE_MS;

  const admin = await adminServer({
    host: config.TL_ADMIN_HOST,
    port: config.TL_ADMIN_PORT,
    readyz: () => ({
      ok: state === "ready" && !natsAway(),
      checks: { worker: state, nats: natsAway() ? "away" : "connected" },
    }),
    metrics,
    log,
  });
  const shutdown = onSignals({
    log,
    steps: [
      {
        name: "hand runs back",
        timeoutMs: config.TL_DRAIN_MS + HAND_BACK_MS,
        run: () => {
          state = "stopping";
          return worker.stop();
        },
      },
      { name: "leave NATS", timeoutMs: 5_000, run: () => broker.close() },
      { name: "close the admin port", timeoutMs: 1_000, run: () => admin.close() },
    ],
  });

  await worker.start();
  if (state === "starting") state = "ready";
  log.info({ worker: worker.id, admin_port: admin.port, roots: roots.paths }, "runtime is ready");
}

async function llmOver(endpoint: ModelEndpoint, config: RuntimeConfig): Promise<Agent> {
  const { TL_SHELL_ROOT: folder, TL_SHELL_TIMEOUT_MS: timeoutMs, PATH: searchPath } = config;
  return llm({
    provider: openProvider({ ...endpoint, idleMs: config.TL_LLM_IDLE_MS }),
    defaultModel: endpoint.model,
    tools: folder === undefined ? [] : [await openShell({ folder, timeoutMs, searchPath })],
    maxRounds: config.TL_LLM_MAX_ROUNDS,
    retries: config.TL_LLM_RETRIES,
    backoffMs: config.TL_LLM_BACKOFF_MS,
  });
}

try {
  await main(readConfig(process.env));
} catch (error) {
  // Before the log exists, or while starting: a person is looking at this.
  const text =
    error instanceof ConfigError
      ? error.message
      : String(error instanceof Error ? error.stack : error);
  process.stderr.write(`runtime cannot start: ${text}\n`);
  process.exit(1);
}
