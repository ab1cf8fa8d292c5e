/** Waiting for a peer: until it answers, stays silent for too long, or nobody wants the answer any more. */

export interface Patience {
  /** Aborted when the run is, when a wait takes too long, and by `end`. */
  readonly signal: AbortSignal;
  /** A wait has taken too long. */
  readonly ranOut: boolean;
  /** The peer's silence is bounded while this waits; what we do between two waits is not held against it. */
  during<T>(waiting: Promise<T>, ms: number): Promise<T>;
  /** Ends what still uses the signal, and no longer listens to the run's. */
  end(): void;
}

export function openPatience(run: AbortSignal): Patience {
  const own = new AbortController();
  let ranOut = false;
  const forward = (): void => own.abort(run.reason);
  if (run.aborted) forward();
  run.addEventListener("abort", forward, { once: true });
  return {
    signal: own.signal,
    get ranOut() {
      return ranOut;
    },
    async during(waiting, ms) {
      const timer = setTimeout(() => {
        ranOut = true;
        own.abort();
      }, ms);
      try {
        return await waiting;
      } finally {
        clearTimeout(timer);
      }
    },
    end() {
      run.removeEventListener("abort", forward);
      own.abort();
    },
  };
}
