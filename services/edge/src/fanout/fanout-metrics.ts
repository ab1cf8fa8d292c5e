/** Counters of the fan-out: plain numbers, since a metrics library costs 100 ns a step on the hot path. */
export interface FanoutMetrics {
  /** Frames published to topics with clients on them. */
  published: number;
  /** Delta frames published. */
  deltas: number;
  /** Delta frames not shown to live clients, since the turn had no room. */
  deltasSkipped: number;
  /** Repaired messages that came after later ones. */
  late: number;
  /** Pages read from the log. */
  logReads: number;
  /** Events fed to paced clients. */
  fed: number;
  /** Times that a client had deltas withheld, was taken off its topic, came back. */
  withheld: number;
  demoted: number;
  recovered: number;
  /** Subscriptions that are without deltas, or off their topic, for being slow now. */
  lagging: number;
  /** Times that a hub's publishes waited for the next turn. */
  deferred: number;
  /** Times that a client had used its window up while there was more. */
  creditWaits: number;
  /** Hubs that met a fault of the log. */
  faults: number;
}

export function fanoutMetrics(): FanoutMetrics {
  return {
    published: 0,
    deltas: 0,
    deltasSkipped: 0,
    late: 0,
    logReads: 0,
    fed: 0,
    withheld: 0,
    demoted: 0,
    recovered: 0,
    lagging: 0,
    deferred: 0,
    creditWaits: 0,
    faults: 0,
  };
}
