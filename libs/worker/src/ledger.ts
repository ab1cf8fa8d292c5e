/**
 * A run's state by its stored events: what snapshots hold, what commands and the end are judged by, and
 * what an agent's operations wait for.
 *
 * The run's writer tells of each message once it is stored, so an event whose append may still fail is
 * never part of it, and the log need not be read back.
 */
import type { MessageAt } from "@throughline/broker";
import { type DurableEvent, reduce, type RunState } from "@throughline/protocol";

interface Waiter {
  /** Whether it has seen what it waits for. */
  readonly look: (state: RunState) => boolean;
  readonly failed: (error: unknown) => void;
}

export class Ledger {
  #state: RunState;
  #streamSeq: number;
  readonly #waiters: Set<Waiter> = new Set();

  /** `streamSeq`: of the message that holds the state's last event. */
  constructor(state: RunState, streamSeq: number) {
    this.#state = state;
    this.#streamSeq = streamSeq;
  }

  get state(): RunState {
    return this.#state;
  }

  /** Of the message that holds the state's last event. */
  get streamSeq(): number {
    return this.#streamSeq;
  }

  /** The writer's `onStored`. Throws HoleError if the writer has left one out. */
  absorb(events: readonly DurableEvent[], at: MessageAt): void {
    this.#state = events.reduce((state, event) => reduce(state, event), this.#state);
    this.#streamSeq = at.streamSeq;
    for (const waiter of this.#waiters) {
      try {
        if (waiter.look(this.#state)) this.#waiters.delete(waiter);
      } catch (error) {
        // The waiter's own fault, and not the log's.
        this.#waiters.delete(waiter);
        waiter.failed(error);
      }
    }
  }

  /**
   * Looks now and after each message that is stored; resolves with the first that is not undefined.
   * Rejects with the signal's reason, or with what `look` throws.
   */
  async until<T>(look: (state: RunState) => T | undefined, signal: AbortSignal): Promise<T> {
    signal.throwIfAborted();
    const now = look(this.#state);
    if (now !== undefined) return now;
    let aborted = (): void => undefined;
    const found = new Promise<T>((resolve, reject) => {
      const waiter: Waiter = {
        look: (state) => {
          const seen = look(state);
          if (seen === undefined) return false;
          resolve(seen);
          return true;
        },
        failed: reject,
      };
      this.#waiters.add(waiter);
      aborted = () => {
        this.#waiters.delete(waiter);
        reject(signal.reason);
      };
      signal.addEventListener("abort", aborted, { once: true });
    });
    try {
      return await found;
    } finally {
      signal.removeEventListener("abort", aborted);
    }
  }
}
