import { describe, expect, it } from "vitest";
import { createMetrics, type Metrics, watchEventLoop } from "@throughline/service-kit";
import { eventually } from "@throughline/testkit";

async function series(metrics: Metrics, name: string): Promise<Record<string, number>> {
  const lines = (await metrics.text()).split("\n").filter((line) => line.startsWith(name));
  return Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.lastIndexOf(" ")),
      Number(line.slice(line.lastIndexOf(" "))),
    ]),
  );
}

describe("metrics", () => {
  it("[MET1] turns plain numbers into series at each scrape, each addition once", async () => {
    const metrics = createMetrics({ node: "n1" });
    const frames = metrics.counter("throughline_frames_total", "Frames.");
    frames.value += 2;
    expect(await series(metrics, "throughline_frames_total")).toEqual({
      'throughline_frames_total{node="n1"}': 2,
    });
    frames.value++;
    await metrics.text();
    expect(await series(metrics, "throughline_frames_total")).toEqual({
      'throughline_frames_total{node="n1"}': 3,
    });
  });

  it("[MET2] has a series for each value of a label from the start, and for no other", async () => {
    const metrics = createMetrics({});
    const closed = metrics.counterBy("throughline_closed_total", "Closed.", "code", [
      "1000",
      "4410",
    ]);
    closed["4410"].value++;
    metrics.gaugeBy("throughline_open", "Open.", "kind", ["ws", "sse"], (kind) =>
      kind === "ws" ? 5 : 0,
    );
    expect(await series(metrics, "throughline_")).toEqual({
      'throughline_closed_total{code="1000"}': 0,
      'throughline_closed_total{code="4410"}': 1,
      'throughline_open{kind="ws"}': 5,
      'throughline_open{kind="sse"}': 0,
    });
  });

  it("[MET6] says what does not change as the labels of one series", async () => {
    const metrics = createMetrics({ node: "n1" });
    metrics.info("throughline_edge_info", "What runs.", { version: "1.2.3", build: "b" });
    expect(await series(metrics, "throughline_edge_info")).toEqual({
      'throughline_edge_info{version="1.2.3",build="b",node="n1"}': 1,
    });
  });

  it("[MET3] reads gauges at the scrape", async () => {
    const metrics = createMetrics({});
    let now = 1;
    metrics.gauge("throughline_now", "Now.", () => now);
    await metrics.text();
    now = 7;
    expect(await series(metrics, "throughline_now")).toEqual({ throughline_now: 7 });
  });

  it("[MET4] refuses names that promtool would complain about", () => {
    const metrics = createMetrics({});
    expect(() => metrics.counter("throughline_frames", "x")).toThrow("_total");
    expect(() => metrics.gauge("throughline_open_total", "x", () => 0)).toThrow("_total");
    expect(() => metrics.histogram("latency_seconds", "x", [1])).toThrow("throughline_");
  });

  it("[MET5] measures how late the event loop is, and not the scrape", async () => {
    const metrics = createMetrics({});
    const stop = watchEventLoop(metrics);
    const bucket = async (le: string): Promise<number> => {
      const all = await series(metrics, "throughline_event_loop_lag_seconds_bucket");
      return all[`throughline_event_loop_lag_seconds_bucket{le="${le}"}`] ?? NaN;
    };
    let worst = 0;
    const worstLag = async (): Promise<number> =>
      Object.values(await series(metrics, "throughline_event_loop_lag_max_seconds"))[0] ?? NaN;
    await eventually(async () => (await bucket("+Inf")) > 0);
    // Two samples and a half: however the block lies between them, one is more than 250 ms late.
    const until = performance.now() + 500;
    while (performance.now() < until);
    await eventually(async () => (worst = await worstLag()) > 0.25);
    await eventually(async () => (await bucket("+Inf")) - (await bucket("0.25")) === 1);
    stop();
    expect(worst).toBeGreaterThan(0.25);
    expect(await worstLag()).toBe(0);
    const busy = Object.values(await series(metrics, "throughline_event_loop_utilization"));
    expect(busy[0]).toBeGreaterThan(0);
    expect(await metrics.text()).not.toContain("nodejs_eventloop_lag");
    expect(await metrics.text()).toContain("process_resident_memory_bytes");
  });
});
