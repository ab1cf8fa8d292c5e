import { checkRetention, openBroker } from "@throughline/broker";
import {
  adminServer,
  createLogger,
  createMetrics,
  onSignals,
  watchEventLoop,
} from "@throughline/service-kit";
import { readConfig } from "./config.ts";
import { startEdge } from "./edge.ts";
import { kernelAdvice } from "./lifecycle/kernel.ts";
import { exposeMetrics } from "./metrics.ts";
import { loadUws } from "./transport/uws.ts";
import { version } from "./version.ts";

/** The composition root: the only reader of the environment and of signals. */
async function main(): Promise<void> {
  const config = readConfig(process.env);
  const log = createLogger({
    service: "edge",
    node: config.TL_NODE_ID,
    level: config.TL_LOG_LEVEL,
  });
  const uws = loadUws();
  log.info({ uws: uws.build }, `using ${uws.build}`);
  const advice = kernelAdvice();
  if (advice !== undefined) log.warn({}, advice);

  const broker = await openBroker({
    servers: config.TL_NATS_URL,
    name: `edge ${config.TL_NODE_ID}`,
    shards: config.TL_SHARDS,
    replicas: config.TL_REPLICAS,
    eventsMaxAgeMs: config.TL_EVENTS_MAX_AGE_MS,
    historyMaxAgeMs: config.TL_HISTORY_MAX_AGE_MS,
  });
  // The edge sets the deadlines: events must outlast the runs that they are of.
  await checkRetention(broker, {
    deadlineMs: config.TL_DEADLINE_MS,
    allowShortRetention: config.TL_ALLOW_SHORT_RETENTION,
  });
  const edge = await startEdge(
    {
      nodeId: config.TL_NODE_ID,
      host: config.TL_HOST,
      port: config.TL_PORT,
      sharedPort: config.TL_SHARED_PORT,
      devTokens: config.TL_DEV_TOKENS,
      trustedProxies: config.TL_TRUSTED_PROXIES,
      allowedOrigins: config.TL_ALLOWED_ORIGINS,
      streamKeys: config.TL_STREAM_KEY,
      maxConnections: config.TL_MAX_CONNECTIONS,
      framesPerSecond: config.TL_FRAMES_PER_SECOND,
      fanoutBytes: config.TL_FANOUT_BYTES,
      deadlineMs: config.TL_DEADLINE_MS,
      drainDelayMs: config.TL_DRAIN_DELAY_MS,
      drainMs: config.TL_DRAIN_MS,
    },
    broker,
    uws,
    log,
  );
  const metrics = createMetrics({ service: "edge", node: config.TL_NODE_ID });
  metrics.info("throughline_edge_info", "What runs here.", { version: version(), uws: uws.build });
  watchEventLoop(metrics);
  const admin = await adminServer({
    host: config.TL_ADMIN_HOST,
    port: config.TL_ADMIN_PORT,
    readyz: () => edge.readiness(),
    metrics: exposeMetrics(metrics, edge.measured),
    log,
  });
  onSignals({
    log,
    steps: [
      {
        name: "drain",
        run: () => edge.drain(),
        timeoutMs: config.TL_DRAIN_DELAY_MS + config.TL_DRAIN_MS + 30_000,
      },
      { name: "edge", run: () => edge.close(), timeoutMs: 1_000 },
      { name: "nats", run: () => broker.close(), timeoutMs: 5_000 },
      { name: "admin", run: () => admin.close(), timeoutMs: 1_000 },
    ],
  });
  log.info({ port: edge.port, sharedPort: config.TL_SHARED_PORT, admin: admin.port }, "ready");
}

try {
  await main();
} catch (error) {
  // A setting, a port or a server that is not there: said in one line for whoever starts it.
  process.stderr.write(`edge: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
