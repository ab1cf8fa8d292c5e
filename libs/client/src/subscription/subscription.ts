/** The shell around wire.ts: one subscription of one consumer, on one link. */
import {
  type ControlFrame,
  type ControlFrameOf,
  ERROR_CODES,
  isErrorCode,
} from "@throughline/protocol";
import type { Clock } from "../clock.ts";
import { type BackoffOptions, backoff } from "../connection/backoff.ts";
import { FollowFailed } from "../errors.ts";
import type { IncomingEvent } from "../frame.ts";
import type { Position } from "./ledger.ts";
import {
  type WireEffect,
  type WireEvent,
  type WireState,
  initialWire,
  wireTransition,
} from "./wire.ts";

/** A run, or without one the whole session. */
export interface Filter {
  readonly session: string;
  readonly run?: string;
}

/** A connection takes no two subscriptions of which one covers the other. */
export function overlap(a: Filter, b: Filter): boolean {
  if (a.session !== b.session) return false;
  return a.run === undefined || b.run === undefined || a.run === b.run;
}

/** Whoever follows. */
export interface Consumer {
  readonly filter: Filter;
  readonly deltas: boolean;
  /** From where to ask, now. */
  position(): Position;
  /** The server has taken the subscription. `asked`: from where it had been asked. */
  started(frame: ControlFrameOf<"subscribed">, asked: Position): void;
  snapshot(frame: ControlFrameOf<"snapshot">, bytes: number): void;
  /** Everything that was stored has come; what comes now is new. */
  level(): void;
  event(incoming: IncomingEvent, bytes: number): void;
  /** Nothing is left of the subscription. */
  released(why: Released): void;
}

export type Released =
  | { readonly kind: "asked" }
  | { readonly kind: "run_ended" }
  | { readonly kind: "failed"; readonly error: Error };

/** The connection, as a subscription sees it. */
export interface Wire {
  readonly isOpen: boolean;
  subscribe(subscription: Subscription, filter: Filter, at: Position, deltas: boolean): string;
  unsubscribe(subscription: Subscription, subscriptionId: string): string;
  released(subscription: Subscription): void;
}

export interface SubscriptionOptions {
  clock: Clock;
  random: () => number;
  reconnect: BackoffOptions;
}

/** Milliseconds. `unsubscribed` follows on a terminal event at once. */
const END_MS = 2_000;

interface Question {
  readonly id: string;
  readonly askedAt: number;
  readonly position?: Position;
}

export class Subscription {
  readonly consumer: Consumer;
  readonly #wire: Wire;
  readonly #options: SubscriptionOptions;
  #state: WireState = initialWire;
  /** What waits for an answer, in `asking` and `leaving`. */
  #question: Question | undefined;
  /** The server's name for it, in `on` and `leaving`. */
  #id = "";
  /** Times in a row that asking led to nothing. */
  #failures = 0;
  #retryAfterMs = 0;
  #why: Released = { kind: "asked" };
  #stopTimer: () => void = () => undefined;
  /** While the end is expected: calls that off. */
  #notEnding: (() => void) | undefined;

  constructor(consumer: Consumer, wire: Wire, options: SubscriptionOptions) {
    this.consumer = consumer;
    this.#wire = wire;
    this.#options = options;
  }

  get askedAt(): number | undefined {
    return this.#question?.askedAt;
  }

  want(): void {
    this.#dispatch("want");
  }

  /** The consumer has enough for now, or for good. */
  rest(): void {
    this.#goOn();
    this.#why = { kind: "asked" };
    this.#dispatch("rest");
  }

  /** The run's end has come, and the server will say that this is over; if not, it is told so. */
  expectEnd(): void {
    if (this.#state.name !== "on") return this.rest();
    this.#notEnding = this.#options.clock.after(END_MS, () => this.rest());
  }

  /** Asks anew from the consumer's position; `later` where that has just failed to help. */
  again(later: boolean): void {
    this.#goOn();
    if (later) this.#failures += 1;
    this.#dispatch(later ? "again_later" : "again");
  }

  #goOn(): void {
    this.#notEnding?.();
    this.#notEnding = undefined;
  }

  /** The connection is closed for good. */
  fail(error: Error): void {
    this.#question = undefined;
    this.#why = { kind: "failed", error };
    this.#dispatch("denied");
  }

  up(): void {
    this.#dispatch("up");
  }

  down(): void {
    this.#question = undefined;
    this.#dispatch("down");
    if (this.#notEnding !== undefined) this.rest();
  }

  /** Takes a frame that answers this subscription's question, or speaks of it by its id. */
  control(frame: ControlFrame, bytes: number): void {
    switch (frame.type) {
      case "subscribed":
        return this.#subscribed(frame);
      case "unsubscribed":
        return this.#unsubscribed(frame);
      case "error":
      case "command.rejected":
        return this.#refused(frame);
      case "snapshot":
        if (this.#state.name === "on") this.consumer.snapshot(frame, bytes);
        return;
      case "caught_up":
        if (this.#state.name === "on") this.consumer.level();
        return;
      default:
    }
  }

  event(incoming: IncomingEvent, bytes: number): void {
    if (this.#state.name !== "on") return;
    if (incoming.kind !== "ephemeral") this.#failures = 0;
    this.consumer.event(incoming, bytes);
  }

  #subscribed(frame: ControlFrameOf<"subscribed">): void {
    if (frame.id !== this.#question?.id) return;
    const asked = this.#question?.position;
    this.#question = undefined;
    this.#id = frame.subscription_id;
    this.#dispatch("subscribed");
    if (this.#state.name === "on" && asked !== undefined) this.consumer.started(frame, asked);
  }

  #unsubscribed(frame: ControlFrameOf<"unsubscribed">): void {
    // The server may end a subscription in the moment in which it is told to; only one of the two counts.
    if (frame.subscription_id !== this.#id) return;
    this.#id = "";
    this.#question = undefined;
    if (this.#state.name === "on" && frame.reason === "run_ended") {
      this.#why = { kind: "run_ended" };
      return this.#dispatch("denied");
    }
    if (frame.reason === "membership") {
      const error = new FollowFailed("membership", "the user is no longer in the session");
      this.#why = { kind: "failed", error };
      return this.#dispatch("denied");
    }
    this.#dispatch("unsubscribed");
  }

  #refused(frame: ControlFrameOf<"error"> | ControlFrameOf<"command.rejected">): void {
    if (frame.id !== this.#question?.id) return;
    this.#question = undefined;
    // Somebody else's subscription, or one whose end is still on its way, can be gone the next moment.
    const mayPass =
      frame.code === "already_subscribed" ||
      (isErrorCode(frame.code) && ERROR_CODES[frame.code].retry);
    if (mayPass) {
      this.#failures += 1;
      this.#retryAfterMs = frame.retry_after_ms ?? 0;
      return this.#dispatch("refused");
    }
    if (this.#state.name === "asking")
      this.#why = { kind: "failed", error: new FollowFailed(frame.code, frame.message) };
    this.#dispatch("denied");
  }

  #dispatch(event: WireEvent): void {
    const { state, effects } = wireTransition(this.#state, event, this.#wire.isOpen);
    this.#state = state;
    for (const effect of effects) this.#perform(effect);
  }

  #perform(effect: WireEffect): void {
    const { clock, random, reconnect } = this.#options;
    const askedAt = clock.now();
    switch (effect) {
      case "send_subscribe": {
        const position = this.consumer.position();
        const { filter, deltas } = this.consumer;
        const id = this.#wire.subscribe(this, filter, position, deltas);
        this.#question = { id, askedAt, position };
        return;
      }
      case "send_unsubscribe":
        this.#question = { id: this.#wire.unsubscribe(this, this.#id), askedAt };
        return;
      case "start_timer": {
        const delay = this.#retryAfterMs + backoff("now", this.#failures, random(), reconnect);
        this.#retryAfterMs = 0;
        this.#stopTimer = clock.after(delay, () => this.#dispatch("timer"));
        return;
      }
      case "stop_timer":
        return this.#stopTimer();
      case "released":
        this.#goOn();
        this.#wire.released(this);
        this.consumer.released(this.#why);
        return;
    }
  }
}
