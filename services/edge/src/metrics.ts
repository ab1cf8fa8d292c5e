import { CLOSE_CODES } from "@throughline/protocol";
import type { Count, Metrics } from "@throughline/service-kit";
import type { Budget } from "./fanout/budget.ts";
import type { FanoutMetrics } from "./fanout/fanout-metrics.ts";
import type { Hubs } from "./fanout/hubs.ts";
import type { Slots } from "./lifecycle/admission.ts";
import type { ConnectionMetrics } from "./session/connection-services.ts";

export interface Measured {
  readonly fanout: FanoutMetrics;
  readonly connection: ConnectionMetrics;
  readonly budget: Budget;
  readonly hubs: Hubs;
  readonly connections: Slots;
  readonly attaches: Slots;
  readonly isNatsUp: () => boolean;
}

export function connectionMetrics(): ConnectionMetrics {
  return {
    received: 0,
    unreadable: 0,
    limited: 0,
    sentControl: 0,
    accepted: 0,
    rejected: 0,
    closed: new Map(),
  };
}

/** The counters: series, what it counts, where the plain number is. */
const COUNTERS: readonly (readonly [string, string, (m: Measured) => number])[] = [
  [
    "frames_published",
    "Event frames published to topics, once whatever the clients.",
    (m) => m.fanout.published,
  ],
  ["deltas_published", "Delta frames published to topics.", (m) => m.fanout.deltas],
  [
    "deltas_skipped",
    "Delta frames that live clients were not shown.",
    (m) => m.fanout.deltasSkipped,
  ],
  ["events_fed", "Events sent to clients that catch up.", (m) => m.fanout.fed],
  ["late_messages", "Repaired messages that came after later ones.", (m) => m.fanout.late],
  ["log_reads", "Pages read from the event log.", (m) => m.fanout.logReads],
  [
    "deltas_withheld",
    "Times that a slow client had its deltas withheld.",
    (m) => m.fanout.withheld,
  ],
  ["demotions", "Times that a slow client was taken off its topic.", (m) => m.fanout.demoted],
  ["recoveries", "Times that a slow client came back.", (m) => m.fanout.recovered],
  [
    "credit_waits",
    "Times that a client had used its window up while there was more.",
    (m) => m.fanout.creditWaits,
  ],
  [
    "publishes_deferred",
    "Times that a topic's publishes waited for the next turn, which has room for them.",
    (m) => m.fanout.deferred,
  ],
  ["hub_faults", "Hubs closed since the log contradicted itself.", (m) => m.fanout.faults],
  [
    "evictions",
    "Rings, pages and delta buffers let go for the byte budget.",
    (m) => m.budget.evictions,
  ],
  ["frames_received", "Frames from clients.", (m) => m.connection.received],
  [
    "frames_unreadable",
    "Frames from clients that could not be read.",
    (m) => m.connection.unreadable,
  ],
  [
    "frames_limited",
    "Frames from clients that were refused since they were too many at once.",
    (m) => m.connection.limited,
  ],
  ["control_frames_sent", "Control frames sent.", (m) => m.connection.sentControl],
  ["commands_accepted", "Commands stored.", (m) => m.connection.accepted],
  ["commands_rejected", "Commands refused.", (m) => m.connection.rejected],
];

const GAUGES: readonly (readonly [string, string, (m: Measured) => number])[] = [
  ["connections", "Open WebSocket connections.", (m) => m.connections.taken],
  ["hubs", "Runs and sessions that this node follows.", (m) => m.hubs.size],
  [
    "subscriptions_lagging",
    "Subscriptions that are without deltas, or off their topic, for being slow.",
    (m) => m.fanout.lagging,
  ],
  ["attaches_waiting", "Subscriptions that wait to begin.", (m) => m.attaches.queued],
  ["fanout_bytes", "Memory in rings, pages and delta buffers.", (m) => m.budget.total],
  ["nats_up", "1 while NATS is connected.", (m) => (m.isNatsUp() ? 1 : 0)],
];

const CLOSE_NAMES = CLOSE_CODES.map((row) => row.name);

/** Registers the series; the numbers are handed over at each scrape. */
export function exposeMetrics(
  metrics: Metrics,
  measured: Measured,
): Pick<Metrics, "text" | "contentType"> {
  const counters: [Count, (m: Measured) => number][] = COUNTERS.map(([name, help, read]) => [
    metrics.counter(`throughline_edge_${name}_total`, help),
    read,
  ]);
  for (const [name, help, read] of GAUGES) {
    metrics.gauge(`throughline_edge_${name}`, help, () => read(measured));
  }
  const closes = metrics.counterBy(
    "throughline_edge_closes_total",
    "Connections that the node closed, by the name of the close code.",
    "code",
    CLOSE_NAMES,
  );
  return {
    contentType: metrics.contentType,
    text: () => {
      for (const [count, read] of counters) count.value = read(measured);
      for (const { code, name } of CLOSE_CODES) {
        closes[name].value = measured.connection.closed.get(code) ?? 0;
      }
      return metrics.text();
    },
  };
}
