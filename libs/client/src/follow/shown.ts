/** What a handle shows: the state that the events amount to, and those who act on what they see in it. */
import { type RunState, isTerminal } from "@throughline/protocol";
import type { Clock } from "../clock.ts";
import { Effects } from "../commands/effects.ts";
import type { BackoffOptions } from "../connection/backoff.ts";
import type { IncomingEvent } from "../frame.ts";
import type { CallWatch } from "../tools/call-watch.ts";
import { type AnyEvent, LargeStates } from "./large-states.ts";
import { type Book, isFinished } from "./state.ts";
import { Store } from "./store.ts";

export interface ShownSetup<S> {
  readonly book: Book<S>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly reconnect: BackoffOptions;
  /** A state that fits no frame, by its URL. Rejects where it cannot be had now. */
  readonly fetchState: (url: string, signal: AbortSignal) => Promise<RunState>;
}

export interface ShownHooks {
  readonly maxHeldBytes: number;
  /** A state that the server only names cannot be had. */
  missing(run: string): void;
  /** A state that was waited for is here, or will not come: has its run ended? */
  settled(run: string, isOver: boolean): void;
}

export class Shown<S> {
  readonly store: Store<S>;
  readonly effects: Effects = new Effects();
  /** Finds the calls that this client executes. */
  calls: CallWatch | undefined;
  readonly #book: Book<S>;
  readonly #hooks: ShownHooks;
  readonly #largeStates: LargeStates;

  constructor(setup: ShownSetup<S>, hooks: ShownHooks) {
    this.#book = setup.book;
    this.#hooks = hooks;
    this.store = new Store(setup.book.initial);
    this.#largeStates = new LargeStates({
      ...setup,
      maxHeldBytes: hooks.maxHeldBytes,
      fetch: setup.fetchState,
      arrived: (run, state, behind) => this.#arrived(run, state, behind),
    });
  }

  /** Whether a state of this run is on its way that the server only names. */
  isComing(run: string): boolean {
    return this.#largeStates.isComing(run);
  }

  event(incoming: IncomingEvent, bytes: number): void {
    if (!this.#largeStates.hold(incoming.event, bytes)) this.#apply(incoming.event);
    if (incoming.kind !== "durable") return;
    this.effects.event(incoming.event);
    this.calls?.event(incoming.event);
  }

  /** A run's state in place of its events: as a whole, or by where it can be fetched as of `seq` or later. */
  snapshot(run: string, state: RunState | { readonly url: string; readonly seq: number }): void {
    if ("url" in state) this.#largeStates.want(run, state.url, state.seq);
    else this.#adopt(run, state);
  }

  /** What was seen is not continued. */
  reset(): void {
    this.#largeStates.clear();
    this.store.set(this.#book.initial);
  }

  /** Nothing more will be seen. */
  end(error: Error): void {
    this.#largeStates.clear();
    this.effects.end(error);
  }

  /** Without a state, what came since is all that is known. */
  #arrived(run: string, state: RunState | undefined, behind: readonly AnyEvent[]): void {
    if (state === undefined) this.#hooks.missing(run);
    else this.#adopt(run, state);
    for (const event of behind) this.#apply(event);
    const isOver = behind.some(({ type }) => isTerminal(type));
    this.#hooks.settled(run, isOver || (state !== undefined && isFinished(state)));
  }

  #adopt(run: string, state: RunState): void {
    this.store.set(this.#book.adopt(this.store.getSnapshot(), run, state));
    this.effects.state(run, state);
    this.calls?.state(state);
  }

  #apply(event: AnyEvent): void {
    this.store.set(this.#book.apply(this.store.getSnapshot(), event));
  }
}
