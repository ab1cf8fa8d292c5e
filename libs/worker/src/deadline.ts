/**
 * How long before its deadline a run's owner begins to end it. At the deadline the sweep (which takes no
 * notice of owners, since most are dead by then) writes the terminal event and nothing else; the owner
 * also lets the agent go and closes what is open, which takes 2 s where the agent ignores its signal.
 */
const LEAD_MS = 5_000;

/** Pure: when to begin. Of a short run's time a tenth is given to its end. */
export function endBegins(queuedAt: number, deadline: number): number {
  return deadline - Math.min(LEAD_MS, Math.max(0, deadline - queuedAt) / 10);
}

/** setTimeout fires at once beyond 2^31 - 1 ms (24.8 days): such a wait is made of several. */
const LONGEST_MS = 2 ** 31 - 1;

/** Calls `onTime` once `at` (ms since the epoch) has come; at the next turn if it is past. */
export function armTimer(at: number, onTime: () => void): { disarm(): void } {
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const left = at - Date.now();
    timer = left > LONGEST_MS ? setTimeout(arm, LONGEST_MS) : setTimeout(onTime, Math.max(0, left));
  };
  arm();
  return { disarm: () => clearTimeout(timer) };
}
