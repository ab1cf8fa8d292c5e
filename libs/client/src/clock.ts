/** Where the client takes time from, so that a test can hold it still. */
export interface Clock {
  /** Milliseconds. Only differences count, so it need not be the time of day. */
  now(): number;
  /** Runs `callback` after `ms`; returns how to call it off. */
  after(ms: number, callback: () => void): () => void;
}

export const systemClock: Clock = {
  // Not Date.now: a laptop that corrects its clock must not look as if the server had been silent.
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};
