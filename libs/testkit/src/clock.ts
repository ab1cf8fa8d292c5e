/** Time that moves only when told to. */
export interface ManualClock {
  /** Milliseconds; starts at `start`. */
  now(): number;
  /** Runs `callback` once `ms` have been advanced; returns how to call it off. */
  after(ms: number, callback: () => void): () => void;
  /** Timers set and not yet run or called off. */
  readonly pending: number;
  /** Moves on, running what falls due in order of time, then of setting. Timers set meanwhile count too. */
  advance(ms: number): void;
  /** The same, but lets promises settle after each timer. */
  advanceAsync(ms: number): Promise<void>;
}

interface Timer {
  at: number;
  callback: () => void;
}

export function manualClock(start = 0): ManualClock {
  let time = start;
  const timers = new Set<Timer>();

  const nextDue = (until: number): Timer | undefined => {
    let next: Timer | undefined;
    // A Set keeps the order of setting, so of two at one time the earlier set comes first.
    for (const timer of timers)
      if (timer.at <= until && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  };
  const run = (timer: Timer): void => {
    timers.delete(timer);
    time = timer.at;
    timer.callback();
  };

  return {
    now: () => time,
    after(ms, callback) {
      const timer = { at: time + Math.max(0, ms), callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    get pending() {
      return timers.size;
    },
    advance(ms) {
      const until = time + ms;
      for (let due = nextDue(until); due; due = nextDue(until)) run(due);
      time = until;
    },
    async advanceAsync(ms) {
      const until = time + ms;
      await settle();
      for (let due = nextDue(until); due; due = nextDue(until)) {
        run(due);
        await settle();
      }
      time = until;
    },
  };
}

/** setImmediate comes after every microtask that is queued now, however deep the chain of promises. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
