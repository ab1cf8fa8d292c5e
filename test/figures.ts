/** Figures of a load, as a test prints them. */
import type { Edge, Return, ViewerReport } from "@throughline/testkit";

/** The value below which the share `p` of all lies; NaN of none. */
export function quantile(values: readonly number[], p: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))] ?? NaN;
}

export interface Comeback {
  /** ms from the first loss to the last viewer that was level again. */
  readonly lastMs: number;
  /** ms that a viewer was away, from its loss until it was level again. */
  readonly away: readonly number[];
  /** ms from an answered connect until the viewer was level. */
  readonly replay: readonly number[];
  /** Connects that came to nothing. */
  readonly failed: number;
}

export function comeback(returns: readonly Return[]): Comeback {
  const first = Math.min(...returns.map(({ lostAt }) => lostAt));
  return {
    lastMs: Math.max(...returns.map(({ levelAt }) => levelAt)) - first,
    away: returns.map(({ lostAt, levelAt }) => levelAt - lostAt),
    replay: returns.map(({ openAt, levelAt }) => levelAt - openAt),
    failed: returns.reduce((sum, { failed }) => sum + failed, 0),
  };
}

/** `p50 1 · p99 12 · max 15 ms` */
export function spread(values: readonly number[]): string {
  const [p50, p99, most] = [0.5, 0.99, 1].map((p) => quantile(values, p).toFixed(0));
  return `p50 ${p50} · p99 ${p99} · max ${most} ms`;
}

export function totals(reports: readonly ViewerReport[]): { holes: number; repeats: number } {
  const sum = (of: (report: ViewerReport) => number): number =>
    reports.reduce((total, report) => total + of(report), 0);
  return { holes: sum(({ holes }) => holes), repeats: sum(({ repeats }) => repeats) };
}

/** The value of an edge's series, of the first where several have the name. */
export async function series(edge: Edge, name: string): Promise<number> {
  return valueOf(await scrape(edge), name);
}

/** Looks at an edge ten times a second; the worst lag of its event loop, in ms, since it began to. */
export function watchLag(edge: Edge): { stop(): Promise<number> } {
  let worst = 0;
  let isWatching = true;
  const watching = (async () => {
    while (isWatching) {
      // Each look begins the maximum anew, so nobody else may ask for it meanwhile.
      const seconds = valueOf(await scrape(edge), "throughline_event_loop_lag_max_seconds");
      worst = Math.max(worst, seconds * 1_000);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  // Nobody may come to ask: a test that fails ends the edge.
  watching.catch(() => undefined);
  return {
    stop: async () => {
      isWatching = false;
      await watching;
      return Math.round(worst);
    },
  };
}

async function scrape(edge: Edge): Promise<string> {
  return (await fetch(`${edge.adminUrl}/metrics`)).text();
}

function valueOf(text: string, name: string): number {
  const line = text.split("\n").find((each) => each.startsWith(`${name}{`));
  if (line === undefined) throw new Error(`there is no series ${name}`);
  return Number(line.slice(line.lastIndexOf(" ") + 1));
}
