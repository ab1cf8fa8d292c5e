/** How late this process is: the lag of its event loop, and the share of time that it is busy. */
import { performance } from "node:perf_hooks";
import type { Metrics } from "./metrics.ts";

/** Often enough for a histogram; at 20 ms the sampler was half of what an idle node does. */
const SAMPLE_MS = 200;
const BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/**
 * Adds `throughline_event_loop_lag_seconds`, `throughline_event_loop_lag_max_seconds` and
 * `throughline_event_loop_utilization`; returns how to stop.
 */
export function watchEventLoop(metrics: Metrics): () => void {
  const lag = metrics.histogram(
    "throughline_event_loop_lag_seconds",
    "How late a timer fires, sampled every 200 ms.",
    BUCKETS_S,
  );
  let worst = 0;
  let expected = performance.now() + SAMPLE_MS;
  const timer = setInterval(() => {
    const now = performance.now();
    const seconds = Math.max(0, now - expected) / 1000;
    lag.observe(seconds);
    worst = Math.max(worst, seconds);
    expected = now + SAMPLE_MS;
  }, SAMPLE_MS);
  timer.unref();
  metrics.gauge(
    "throughline_event_loop_lag_max_seconds",
    "The latest that a timer has fired since the last scrape.",
    () => {
      const seconds = worst;
      worst = 0;
      return seconds;
    },
  );

  let since = performance.eventLoopUtilization();
  metrics.gauge(
    "throughline_event_loop_utilization",
    "Share of the time since the last scrape in which the event loop was busy.",
    () => {
      const now = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(now, since);
      since = now;
      return utilization;
    },
  );
  return () => clearInterval(timer);
}
