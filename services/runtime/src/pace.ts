import { setTimeout as delay } from "node:timers/promises";

/** Below this a timer overshoots more than it waits; what is due sooner goes out together. */
const SHORTEST_WAIT_MS = 4;

/** Lets things happen at a steady rate, by the clock and not by adding up delays. */
export interface Pacer {
  /** Resolves when the next thing is due; rejects with the signal's reason when aborted. */
  next(): Promise<void>;
}

/** `intervalMs` between two things; 0 = no waiting. */
export function openPacer(intervalMs: number, signal: AbortSignal): Pacer {
  let due = performance.now();
  return {
    next: async () => {
      signal.throwIfAborted();
      if (intervalMs <= 0) return;
      const now = performance.now();
      // After a stall (a full queue, a frozen process) it goes on at its rate and does not catch up in a burst.
      due = Math.max(due + intervalMs, now - intervalMs);
      if (due - now < SHORTEST_WAIT_MS) return;
      try {
        await delay(due - now, undefined, { signal });
      } catch (error) {
        signal.throwIfAborted();
        throw error;
      }
    },
  };
}
