/**
 * States that are too large for a frame. The server names where they can be fetched; until one is here,
 * the run's events wait beside it, since there is nothing yet to apply them to.
 */
import type { RunEvent, RunState, UnknownEvent } from "@throughline/protocol";
import type { Clock } from "../clock.ts";
import { type BackoffOptions, backoff } from "../connection/backoff.ts";

export type AnyEvent = RunEvent | UnknownEvent;

export interface LargeStatesOptions {
  readonly clock: Clock;
  readonly random: () => number;
  readonly reconnect: BackoffOptions;
  /** Of the events that wait for one state. Beyond, they are let go, and a newer state is fetched. */
  readonly maxHeldBytes: number;
  readonly fetch: (url: string, signal: AbortSignal) => Promise<RunState>;
  /** It is here, with what came since; undefined where it cannot be had. */
  arrived(runId: string, state: RunState | undefined, behind: readonly AnyEvent[]): void;
}

interface Coming {
  readonly url: string;
  readonly abort: AbortController;
  held: AnyEvent[];
  heldBytes: number;
  /** Events were let go, so the state has to be as new as this. */
  leastSeq: number;
  failures: number;
  stopTimer: () => void;
}

/** With back-off, about a minute. */
const MAX_FAILURES = 8;

export class LargeStates {
  readonly #options: LargeStatesOptions;
  readonly #coming = new Map<string, Coming>();

  constructor(options: LargeStatesOptions) {
    this.#options = options;
  }

  /** `leastSeq`: the state is as of this event or a later one. */
  want(runId: string, url: string, leastSeq: number): void {
    this.#drop(runId);
    const coming: Coming = {
      url,
      abort: new AbortController(),
      held: [],
      heldBytes: 0,
      leastSeq,
      failures: 0,
      stopTimer: () => undefined,
    };
    this.#coming.set(runId, coming);
    this.#fetch(runId, coming);
  }

  isComing(runId: string): boolean {
    return this.#coming.has(runId);
  }

  /** Takes an event that has to wait; false where none has to. */
  hold(event: AnyEvent, bytes: number): boolean {
    if (!("run_id" in event) || event.run_id === undefined) return false;
    const coming = this.#coming.get(event.run_id);
    if (coming === undefined) return false;
    // What is shown live and not stored would be shown too late.
    if (!("seq" in event) || event.seq === undefined) return true;
    coming.held.push(event);
    coming.heldBytes += bytes;
    if (coming.heldBytes > this.#options.maxHeldBytes) {
      coming.held = [];
      coming.heldBytes = 0;
      coming.leastSeq = event.seq;
    }
    return true;
  }

  /** None is wanted any more. */
  clear(): void {
    for (const runId of [...this.#coming.keys()]) this.#drop(runId);
  }

  #drop(runId: string): void {
    const coming = this.#coming.get(runId);
    this.#coming.delete(runId);
    coming?.stopTimer();
    coming?.abort.abort();
  }

  #fetch(runId: string, coming: Coming): void {
    const isWanted = (): boolean => this.#coming.get(runId) === coming;
    this.#options.fetch(coming.url, coming.abort.signal).then(
      (state) => {
        if (!isWanted()) return;
        if (state.seq < coming.leastSeq) return this.#later(runId, coming);
        this.#coming.delete(runId);
        this.#options.arrived(runId, state, coming.held);
      },
      () => {
        if (isWanted()) this.#later(runId, coming);
      },
    );
  }

  #later(runId: string, coming: Coming): void {
    coming.failures += 1;
    if (coming.failures >= MAX_FAILURES) {
      this.#coming.delete(runId);
      this.#options.arrived(runId, undefined, coming.held);
      return;
    }
    const { clock, random, reconnect } = this.#options;
    const delay = backoff("now", coming.failures, random(), reconnect);
    coming.stopTimer = clock.after(delay, () => this.#fetch(runId, coming));
  }
}
