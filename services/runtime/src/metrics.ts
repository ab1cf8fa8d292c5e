import type { Metrics } from "@throughline/service-kit";
import type { Worker, WorkerEvents } from "@throughline/worker";

/** Counts what becomes of runs; to be given to the worker. */
export function countRuns(metrics: Metrics): WorkerEvents {
  const claimed = metrics.counterBy(
    "throughline_runtime_claims_total",
    "Runs that this worker took, new ones and those of a worker that died.",
    "kind",
    ["fresh", "takeover"],
  );
  const left = metrics.counterBy(
    "throughline_runtime_runs_total",
    "Runs that left this worker, by how. `fenced`: another worker had taken it over.",
    "outcome",
    ["completed", "failed", "cancelled", "fenced", "handed_back"],
  );
  return {
    claimed: (kind) => (claimed[kind].value += 1),
    left: (how) => (left[how].value += 1),
  };
}

export function gaugeWorker(metrics: Metrics, worker: Worker, capacity: number): void {
  metrics.gauge("throughline_runtime_active_runs", "Runs in hand.", () => worker.active);
  metrics.gauge(
    "throughline_runtime_capacity_runs",
    "Runs that this worker has room for.",
    () => capacity,
  );
}
