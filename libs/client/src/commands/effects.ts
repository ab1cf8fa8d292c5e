/**
 * Those who wait for what a run makes of a command. That the server has stored a command says only that
 * it will be judged; the verdict is an event of the run that names the command.
 */
import { type DurableEvent, isTerminal, type RunState } from "@throughline/protocol";
import { CommandRejected } from "../errors.ts";

/** The event that says what came of the command; undefined where it came before the handle's first event. */
export type Effect = DurableEvent | undefined;

interface Waiter {
  readonly id: string;
  readonly run: string;
  /** Whether the run's end is what the command asks for. */
  readonly asksForEnd: boolean;
  readonly resolve: (effect: Effect) => void;
  readonly reject: (error: Error) => void;
}

export interface Expected {
  readonly seen: Promise<Effect>;
  /** The command was not stored, or nobody waits any more. */
  forget(): void;
}

/** Bounded by the outbox: each has a command in it, or one that was just answered. */
export class Effects {
  readonly #waiters = new Map<string, Waiter>();
  /** The flow of events is stopped for a slow iteration, perhaps by the very caller who waits here. */
  #isHeld = false;
  #over: Error | undefined;

  /** To be called before the command is sent: its effect may come before its answer. */
  expect(id: string, run: string, asksForEnd: boolean): Expected {
    let resolve: (effect: Effect) => void = () => undefined;
    let reject: (error: Error) => void = () => undefined;
    const seen = new Promise<Effect>((yes, no) => {
      resolve = yes;
      reject = no;
    });
    // Looked at only once the command is stored; a handle that is closed before must end no process.
    seen.catch(() => undefined);
    const waiter: Waiter = { id, run, asksForEnd, resolve, reject };
    this.#waiters.set(id, waiter);
    if (this.#over !== undefined) this.#settle(waiter, this.#over);
    else if (this.#isHeld) this.#settle(waiter, undefined);
    return { seen, forget: () => this.#drop(waiter) };
  }

  event(event: DurableEvent): void {
    if (this.#waiters.size === 0) return;
    if (event.type === "command.rejected") {
      const waiter = this.#waiters.get(event.payload.id);
      if (waiter?.run === event.run_id) this.#settle(waiter, new CommandRejected(event.payload));
      return;
    }
    const isEnd = isTerminal(event.type);
    const named = event.reply_to === undefined ? undefined : this.#waiters.get(event.reply_to);
    // What a cancellation closes on the way names it as well; what it asks for is the end.
    if (named?.run === event.run_id && (isEnd || !named.asksForEnd)) this.#settle(named, event);
    if (isEnd) this.#ended(event);
  }

  /** A state in place of events: what it has applied needs no waiting. */
  state(run: string, state: RunState): void {
    for (const waiter of this.#waiters.values()) {
      if (waiter.run === run && hasApplied(state, waiter.id)) this.#settle(waiter, undefined);
    }
  }

  /** No events come until the iteration goes on: that the command is stored has to be enough. */
  hold(): void {
    this.#isHeld = true;
    for (const waiter of this.#waiters.values()) this.#settle(waiter, undefined);
  }

  release(): void {
    this.#isHeld = false;
  }

  /** No event will come. */
  end(error: Error): void {
    this.#over = error;
    for (const waiter of this.#waiters.values()) this.#settle(waiter, error);
  }

  /** The terminal event answers what is still open. */
  #ended(event: DurableEvent): void {
    for (const waiter of this.#waiters.values()) {
      if (waiter.run !== event.run_id) continue;
      const message = `the run had ended (${event.type}) before the command was judged`;
      const ended = new CommandRejected({ id: waiter.id, code: "run_ended", message });
      this.#settle(waiter, waiter.asksForEnd ? event : ended);
    }
  }

  #settle(waiter: Waiter, outcome: Effect | Error): void {
    this.#drop(waiter);
    if (outcome instanceof Error) waiter.reject(outcome);
    else waiter.resolve(outcome);
  }

  #drop(waiter: Waiter): void {
    if (this.#waiters.get(waiter.id) === waiter) this.#waiters.delete(waiter.id);
  }
}

/** The log does not say to the client which user it is, so any user's command of this id counts. */
export function hasApplied(state: RunState, id: string): boolean {
  return Object.keys(state.applied).some((key) => key === id || key.startsWith(`${id} `));
}
