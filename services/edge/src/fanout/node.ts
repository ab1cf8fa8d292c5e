import type { LogFilter } from "@throughline/broker";
import type { Publisher } from "../session/port.ts";
import type { Budget } from "./budget.ts";
import type { FanoutMetrics } from "./fanout-metrics.ts";
import type { FanoutLimits } from "./limits.ts";
import type { EventSource } from "./log.ts";
import type { Reads } from "./reads.ts";
import type { Turn } from "./turn.ts";

/** What all hubs of a node share. */
export interface FanoutNode {
  readonly log: EventSource;
  readonly publisher: Publisher;
  readonly turn: Turn;
  readonly budget: Budget;
  readonly reads: Reads;
  readonly limits: FanoutLimits;
  readonly metrics: FanoutMetrics;
  readonly report: (error: Error, filter: LogFilter) => void;
  /** ms, monotonic. */
  readonly now: () => number;
  readonly after: (ms: number, run: () => void) => void;
}
