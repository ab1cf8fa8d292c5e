/**
 * Metrics that cost a number's increment where they are counted, and become a series when they are scraped.
 *
 * prom-client takes 126 ns for an `inc` with labels, where an edge delivers an event in 1,500: so the hot
 * path adds to plain numbers, and `collect` hands over what has come since the last scrape.
 *
 * Labels have a fixed set of values, given when the metric is made: nothing a client sends can become one.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";

/** A count that only grows. */
export interface Count {
  /** Add to it freely; never lower it. */
  value: number;
}

export interface Metrics {
  readonly contentType: string;
  /** The scrape, in Prometheus' text format. */
  readonly text: () => Promise<string>;
  readonly counter: (name: string, help: string) => Count;
  /** One count for each value of a label. */
  readonly counterBy: <V extends string>(
    name: string,
    help: string,
    label: string,
    values: readonly V[],
  ) => Readonly<Record<V, Count>>;
  /** Read at each scrape. */
  readonly gauge: (name: string, help: string, read: () => number) => void;
  readonly gaugeBy: <V extends string>(
    name: string,
    help: string,
    label: string,
    values: readonly V[],
    read: (value: V) => number,
  ) => void;
  /** What does not change while the process lives, as the labels of one series of value 1. */
  readonly info: (name: string, help: string, labels: Readonly<Record<string, string>>) => void;
  /** 240 ns an observation: not for every delivery. */
  readonly histogram: (
    name: string,
    help: string,
    buckets: readonly number[],
  ) => { observe: (value: number) => void };
}

/** @param labels on every series, e.g. `{ service: "edge", node: "edge-1" }` */
export function createMetrics(labels: Record<string, string>): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels(labels);
  collectDefaultMetrics({ register: registry });
  // They measure the time from the scrape to the next turn, that is, the scrape itself. See event-loop.ts.
  for (const name of registry.getMetricsAsArray().map((metric) => metric.name)) {
    if (name.startsWith("nodejs_eventloop_lag")) registry.removeSingleMetric(name);
  }

  const counterBy: Metrics["counterBy"] = (name, help, label, values) => {
    checkName(name, "counter");
    const counts = fromValues(values, () => ({ value: 0 }));
    const flushed = fromValues(values, () => 0);
    new Counter({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect() {
        for (const value of values) {
          const now = counts[value].value;
          this.inc({ [label]: value }, now - flushed[value]);
          flushed[value] = now;
        }
      },
    });
    return counts;
  };

  const gaugeBy: Metrics["gaugeBy"] = (name, help, label, values, read) => {
    checkName(name, "gauge");
    new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect() {
        for (const value of values) this.set({ [label]: value }, read(value));
      },
    });
  };

  return {
    contentType: registry.contentType,
    text: () => registry.metrics(),
    counterBy,
    gaugeBy,
    counter: (name, help) => {
      checkName(name, "counter");
      const count: Count = { value: 0 };
      let flushed = 0;
      new Counter({
        name,
        help,
        registers: [registry],
        collect() {
          const { value } = count;
          this.inc(value - flushed);
          flushed = value;
        },
      });
      return count;
    },
    gauge: (name, help, read) => {
      checkName(name, "gauge");
      new Gauge({
        name,
        help,
        registers: [registry],
        collect() {
          this.set(read());
        },
      });
    },
    info: (name, help, labels) => {
      checkName(name, "gauge");
      const labelNames = Object.keys(labels);
      new Gauge({ name, help, labelNames, registers: [registry] }).set({ ...labels }, 1);
    },
    histogram: (name, help, buckets) => {
      checkName(name, "histogram");
      const histogram = new Histogram({ name, help, buckets: [...buckets], registers: [registry] });
      return { observe: (value) => histogram.observe(value) };
    },
  };
}

/** What `promtool check metrics` would say later, said at start. */
function checkName(name: string, kind: "counter" | "gauge" | "histogram"): void {
  if (!/^throughline_[a-z][a-z0-9_]*$/.test(name))
    throw new Error(`metric ${name} must be called throughline_…`);
  if (name.endsWith("_total") !== (kind === "counter")) {
    throw new Error(`metric ${name}: counters end with _total, and nothing else does`);
  }
}

function fromValues<V extends string, T>(
  values: readonly V[],
  make: (value: V) => T,
): Record<V, T> {
  return Object.fromEntries(values.map((value) => [value, make(value)])) as Record<V, T>;
}
