/**
 * Waiting by the log, with something to be decided at a time: an expiry, a lapse, a time-out.
 *
 * What was accepted before that time may not be applied yet. So the command log is drained to its
 * leader's head first, and the decision is made between two commands, by everything that they have done.
 */
import type { RunState } from "@throughline/protocol";
import { armTimer } from "../deadline.ts";
import type { ScopeRun } from "../scope-run.ts";

/**
 * A command that an edge took just in time may take a moment to be stored, and clocks differ a little:
 * what is due is decided this much later. Answers are judged by the time itself.
 */
const GRACE_MS = 100;

export interface Waiting<T> {
  /** What is waited for, once the state holds it. */
  readonly look: (state: RunState) => T | undefined;
  /** When something is to be decided, in ms since the epoch; Infinity: not by time. */
  readonly dueAt: (state: RunState) => number;
  /** Appends what holds then. It must change what `look` or `dueAt` say. */
  readonly decide: (state: RunState) => Promise<unknown>;
}

type Next<T> =
  | { readonly kind: "found"; readonly value: T }
  /** Another time counts now. */
  | { readonly kind: "moved" }
  | { readonly kind: "due" };

/** Resolves with what is waited for. Rejects with RunStopped, or what `decide` rejects with. */
export async function settled<T>(run: ScopeRun, waiting: Waiting<T>): Promise<T> {
  for (;;) {
    const next = await nextOf(run, waiting);
    if (next.kind === "found") return next.value;
    if (next.kind === "moved") continue;
    await run.drainCommands();
    await run.between(async () => {
      run.lane.check();
      const { state } = run.ledger;
      if (waiting.look(state) !== undefined || waiting.dueAt(state) > run.now()) return;
      await waiting.decide(state);
    });
  }
}

async function nextOf<T>(run: ScopeRun, { look, dueAt }: Waiting<T>): Promise<Next<T>> {
  run.signal.throwIfAborted();
  const due = dueAt(run.ledger.state);
  const over = new AbortController();
  const isDue = new Error("it is time");
  const stop = (): void => over.abort(run.signal.reason);
  run.signal.addEventListener("abort", stop, { once: true });
  const timer = due === Infinity ? undefined : armTimer(due + GRACE_MS, () => over.abort(isDue));
  try {
    return await run.ledger.until((state): Next<T> | undefined => {
      const value = look(state);
      if (value !== undefined) return { kind: "found", value };
      return dueAt(state) === due ? undefined : { kind: "moved" };
    }, over.signal);
  } catch (error) {
    if (error !== isDue) throw error;
    return { kind: "due" };
  } finally {
    timer?.disarm();
    run.signal.removeEventListener("abort", stop);
  }
}
