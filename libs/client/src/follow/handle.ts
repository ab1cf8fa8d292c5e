/** What the application holds: a run or a session that it follows. */
import {
  type DurableEvent,
  type RunState,
  type TerminalType,
  isTerminal,
} from "@throughline/protocol";
import { FollowClosed, FollowFailed } from "../errors.ts";
import type { Follow } from "./follow.ts";
import type { Closed, FollowItem } from "./item.ts";
import { type SessionState, isFinished } from "./state.ts";
import type { RunSteering } from "./steering.ts";

export type TerminalEvent = DurableEvent<TerminalType>;

/** How a run ended. */
export interface RunOutcome {
  readonly status: "completed" | "failed" | "cancelled";
  /** Of a completed run. */
  readonly output?: unknown;
  /** Of a failed run. */
  readonly error?: RunState["error"];
  readonly state: RunState;
  /** Missing where only a snapshot of the finished run could be had. */
  readonly event?: TerminalEvent;
}

/** What runs and sessions have in common. Can be iterated; see {@link Handle[Symbol.asyncIterator]}. */
abstract class Handle<S> implements AsyncIterable<FollowItem> {
  readonly session_id: string;
  /** Resolves when following ends, however it does; never rejects. */
  readonly closed: Promise<Closed>;
  readonly #follow: Follow<S>;

  protected constructor(follow: Follow<S>) {
    this.#follow = follow;
    this.session_id = follow.filter.session;
    this.closed = follow.closed;
  }

  /** What the events so far amount to. Another object after each change, the same one without. */
  get state(): S {
    return this.#follow.shown.store.getSnapshot();
  }

  /** Together with {@link subscribe} the shape that stores have, e.g. for React's `useSyncExternalStore`. */
  get getSnapshot(): () => S {
    return this.#follow.shown.store.getSnapshot;
  }

  /** Calls `listener` after each change of the state; returns how to stop that. */
  get subscribe(): (listener: () => void) => () => void {
    return this.#follow.shown.store.subscribe;
  }

  /**
   * Where to go on: behind the last event that an iteration was given or, where there never was one,
   * that is in the state.
   * Keep it and give it to `follow` later. Undefined until the server has named the start.
   */
  get cursor(): string | undefined {
    return this.#follow.cursor;
  }

  /** Stops following. The run goes on. */
  close(): void {
    this.#follow.finish({ reason: "closed" });
  }

  /**
   * Events in order, each durable one once, from where the handle was told to start; a run's end after
   * its terminal event. Deltas come in between as they are, and not again. One iteration at a time; the
   * next one goes on where the last one stopped. While an iteration is slow the state waits with it.
   *
   * Throws where following fails: {@link FollowFailed}, {@link ClientClosed}.
   */
  [Symbol.asyncIterator](): AsyncIterator<FollowItem, undefined, undefined> {
    return this.#follow.reader.iterate();
  }
}

export class RunHandle extends Handle<RunState> {
  readonly run_id: string;
  /**
   * Resolves when the run has ended, whichever way. Rejects where that cannot be learned: closed before
   * ({@link FollowClosed}), refused ({@link FollowFailed}, {@link ClientClosed}).
   */
  readonly done: Promise<RunOutcome>;
  readonly #steering: RunSteering;

  constructor(follow: Follow<RunState>, ending: Ending, steering: RunSteering) {
    super(follow);
    this.run_id = steering.run_id;
    this.#steering = steering;
    this.done = follow.closed.then((closed) =>
      outcome(closed, follow.shown.store.getSnapshot(), ending.event),
    );
    // Whoever never looks at it must not have his process ended by it.
    this.done.catch(() => undefined);
  }

  /** See {@link RunSteering.approve}, and there for all that follow. */
  approve(...args: Parameters<RunSteering["approve"]>): Promise<void> {
    return this.#steering.approve(...args);
  }

  deny(...args: Parameters<RunSteering["deny"]>): Promise<void> {
    return this.#steering.deny(...args);
  }

  respond(...args: Parameters<RunSteering["respond"]>): Promise<void> {
    return this.#steering.respond(...args);
  }

  interrupt(...args: Parameters<RunSteering["interrupt"]>): Promise<void> {
    return this.#steering.interrupt(...args);
  }

  resume(...args: Parameters<RunSteering["resume"]>): Promise<void> {
    return this.#steering.resume(...args);
  }

  continue(...args: Parameters<RunSteering["continue"]>): Promise<void> {
    return this.#steering.continue(...args);
  }

  retryStep(...args: Parameters<RunSteering["retryStep"]>): Promise<void> {
    return this.#steering.retryStep(...args);
  }

  cancel(...args: Parameters<RunSteering["cancel"]>): Promise<void> {
    return this.#steering.cancel(...args);
  }

  retry(...args: Parameters<RunSteering["retry"]>): Promise<RunHandle> {
    return this.#steering.retry(...args);
  }
}

export class SessionHandle extends Handle<SessionState> {
  readonly #steer: (run: string) => RunSteering;

  constructor(follow: Follow<SessionState>, steer: (run: string) => RunSteering) {
    super(follow);
    this.#steer = steer;
  }

  /** Steers one of the session's runs; what comes of it is seen through this handle. */
  run(runId: string): RunSteering {
    return this.#steer(runId);
  }
}

/** Remembers the terminal event when it comes by. */
export class Ending {
  event: TerminalEvent | undefined;

  /** Whether nothing of the run can follow. */
  readonly isEnd = (item: FollowItem): boolean => {
    if (item.type === "snapshot") return item.state !== undefined && isFinished(item.state);
    if (!isTerminalItem(item)) return false;
    this.event = item;
    return true;
  };
}

function isTerminalItem(item: FollowItem): item is FollowItem & TerminalEvent {
  return isTerminal(item.type);
}

function outcome(closed: Closed, state: RunState, event: TerminalEvent | undefined): RunOutcome {
  if (closed.reason === "failed") throw closed.error;
  if (closed.reason === "closed") throw new FollowClosed("closed before the run had ended");
  const { status, output, error } = state;
  if (status !== "completed" && status !== "failed" && status !== "cancelled")
    throw new FollowFailed("run_ended", "the run ended before the cursor it was followed from");
  return {
    status,
    ...(output === undefined ? {} : { output }),
    ...(error === undefined ? {} : { error }),
    state,
    ...(event === undefined ? {} : { event }),
  };
}
