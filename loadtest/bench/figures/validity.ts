/** When a measured window says something about the server, and not about what drove it. Pure. */

/** One process that makes or takes the load. */
export interface Driver {
  readonly name: string;
  /** CPU seconds it used per second of the window: 1 is a whole core. */
  readonly cores: number;
}

export interface Window {
  /** CPU share of the server under test, in cores. */
  readonly serverCores: number;
  /** Times a second that the server's event loop was woken. */
  readonly wakeUps: number;
  readonly drivers: readonly Driver[];
  /** Frames that the viewers together had to get. */
  readonly expected: number;
  /** Frames that they got. */
  readonly delivered: number;
  /** Events a second that were planned, and that were made. */
  readonly plannedRate: number;
  readonly rate: number;
  /** Viewers that lost their connection. */
  readonly lostViewers: number;
}

/** A single-threaded process above this share of its core waits for itself. */
const DRIVER_CORES = 0.9;
/** Events made against events planned: below, the generator was late. */
const KEPT_RATE = 0.95;
/**
 * A server that has its core when it wants it wakes for every event, or at least for every tick of the
 * generator (1 ms). On a machine with too much else to do it sleeps in the run queue instead, finds
 * many events when it runs, and joins their writes: cheap, and not what is to be measured.
 */
const TICKS = 1_000;
const KEPT_WAKE_UPS = 0.4;

/** Why the window must not be counted; empty when it may be. */
export function faultsOf(window: Window): string[] {
  const faults: string[] = [];
  for (const { name, cores } of window.drivers) {
    if (cores > DRIVER_CORES) {
      faults.push(`${name} used ${percent(cores)} of its core: the driver was the bottleneck`);
    }
  }
  if (window.serverCores > DRIVER_CORES) {
    // A busy server joins reads and writes by itself: cheaper a delivery, but another pattern.
    faults.push(
      `the server used ${percent(window.serverCores)} of its core: events no longer came one by one`,
    );
  }
  const wanted = KEPT_WAKE_UPS * Math.min(window.plannedRate, TICKS);
  if (window.wakeUps < wanted) {
    faults.push(
      `the server woke ${Math.round(window.wakeUps)} times a second for ${Math.round(window.plannedRate)} events: the machine was too busy`,
    );
  }
  if (window.delivered !== window.expected) {
    faults.push(`${window.delivered} frames were delivered, ${window.expected} expected`);
  }
  if (window.rate < KEPT_RATE * window.plannedRate) {
    faults.push(
      `${Math.round(window.rate)} events/s were made, ${Math.round(window.plannedRate)} planned: the generator was late`,
    );
  }
  if (window.lostViewers > 0) faults.push(`${window.lostViewers} viewers lost their connection`);
  return faults;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
