/** One connection with the subscriptions on it: puts questions, and brings each frame to whom it concerns. */
import { type Command, type ControlFrame, MAX_SUBSCRIPTIONS } from "@throughline/protocol";
import { Connection, type ConnectionOptions } from "./connection/connection.ts";
import type { ClosedFor, ConnectionState } from "./connection/lifecycle.ts";
import { ClientClosed } from "./errors.ts";
import type { Incoming } from "./frame.ts";
import { newId } from "./new-id.ts";
import type { Position } from "./subscription/ledger.ts";
import {
  type Filter,
  Subscription,
  type Consumer,
  type Wire,
  overlap,
} from "./subscription/subscription.ts";

export interface LinkHooks {
  /** May be answered; asked before any subscription is. */
  answer(frame: ControlFrame): boolean;
  oldestQuestion(): number | undefined;
  up(): void;
  down(closeCode: number | undefined): void;
  changed(): void;
  ended(cause: ClosedFor): void;
  /** The last subscription is gone. */
  empty(): void;
}

export class Link implements Wire {
  readonly #options: ConnectionOptions;
  readonly #hooks: LinkHooks;
  readonly #connection: Connection;
  readonly #subscriptions = new Set<Subscription>();
  /** By the id of the command that is not answered yet. */
  readonly #asked = new Map<string, Subscription>();
  /** By the server's id. */
  readonly #named = new Map<string, Subscription>();
  /** By what it follows; no two here overlap. */
  readonly #followed = new Map<string, Subscription>();

  constructor(options: ConnectionOptions, hooks: LinkHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#connection = new Connection(options, {
      up: () => this.#up(),
      down: (code) => this.#down(code),
      frame: (incoming, bytes) => this.#frame(incoming, bytes),
      oldestQuestion: () => this.#oldestQuestion(),
      ended: (cause) => this.#ended(cause),
      changed: () => hooks.changed(),
    });
  }

  get state(): ConnectionState {
    return this.#connection.state;
  }

  get isOpen(): boolean {
    return this.#connection.isOpen;
  }

  get maxFrameBytes(): number {
    return this.#connection.maxFrameBytes;
  }

  get isEmpty(): boolean {
    return this.#subscriptions.size === 0;
  }

  start(): void {
    this.#connection.start();
  }

  stop(): void {
    this.#connection.stop();
  }

  /** Only while it is open. */
  send(text: string): void {
    this.#connection.send(text);
  }

  /** Whether a subscription to this may be put here. */
  hasRoomFor(filter: Filter): boolean {
    if (this.state.name === "closed" || this.#subscriptions.size >= MAX_SUBSCRIPTIONS) return false;
    for (const { consumer } of this.#subscriptions)
      if (overlap(consumer.filter, filter)) return false;
    return true;
  }

  /** Call {@link hasRoomFor} before. */
  add(consumer: Consumer): Subscription {
    const subscription = new Subscription(consumer, this, this.#options);
    this.#subscriptions.add(subscription);
    this.#followed.set(keyOf(consumer.filter), subscription);
    return subscription;
  }

  subscribe(subscription: Subscription, filter: Filter, at: Position, deltas: boolean): string {
    const id = newId("sub");
    this.#asked.set(id, subscription);
    this.#sendCommand({
      type: "subscribe",
      id,
      session_id: filter.session,
      ...(filter.run === undefined ? {} : { run_id: filter.run }),
      payload: { ...at, ...(deltas ? {} : { deltas: false }) },
    });
    return id;
  }

  unsubscribe(subscription: Subscription, subscriptionId: string): string {
    const id = newId("uns");
    this.#asked.set(id, subscription);
    this.#sendCommand({ type: "unsubscribe", id, payload: { subscription_id: subscriptionId } });
    return id;
  }

  released(subscription: Subscription): void {
    this.#subscriptions.delete(subscription);
    this.#followed.delete(keyOf(subscription.consumer.filter));
    this.#forget(this.#asked, subscription);
    this.#forget(this.#named, subscription);
    if (this.isEmpty) this.#hooks.empty();
  }

  #sendCommand(command: Command): void {
    this.#connection.send(JSON.stringify(command));
  }

  #up(): void {
    this.#hooks.up();
    for (const subscription of [...this.#subscriptions]) subscription.up();
  }

  #down(closeCode: number | undefined): void {
    this.#asked.clear();
    this.#named.clear();
    this.#hooks.down(closeCode);
    for (const subscription of [...this.#subscriptions]) subscription.down();
  }

  #ended(cause: ClosedFor): void {
    this.#hooks.ended(cause);
    const error = new ClientClosed(cause);
    for (const subscription of [...this.#subscriptions]) subscription.fail(error);
  }

  #oldestQuestion(): number | undefined {
    let oldest = this.#hooks.oldestQuestion();
    for (const { askedAt } of this.#subscriptions)
      if (askedAt !== undefined && (oldest === undefined || askedAt < oldest)) oldest = askedAt;
    return oldest;
  }

  #frame(incoming: Incoming, bytes: number): void {
    if (incoming.kind === "control") return this.#control(incoming.frame, bytes);
    const { event } = incoming;
    const run = "run_id" in event ? event.run_id : undefined;
    const subscription =
      (run === undefined
        ? undefined
        : this.#followed.get(keyOf({ session: event.session_id, run }))) ??
      this.#followed.get(keyOf({ session: event.session_id }));
    subscription?.event(incoming, bytes);
  }

  #control(frame: ControlFrame, bytes: number): void {
    if (this.#hooks.answer(frame)) return;
    const asked = "id" in frame && frame.id !== undefined ? this.#asked.get(frame.id) : undefined;
    const named = "subscription_id" in frame ? this.#named.get(frame.subscription_id) : undefined;
    if ("id" in frame && frame.id !== undefined) this.#asked.delete(frame.id);
    if (frame.type === "subscribed" && asked !== undefined)
      this.#named.set(frame.subscription_id, asked);
    if (frame.type === "unsubscribed") this.#named.delete(frame.subscription_id);
    (asked ?? named)?.control(frame, bytes);
  }

  #forget(map: Map<string, Subscription>, subscription: Subscription): void {
    for (const [key, value] of map) if (value === subscription) map.delete(key);
  }
}

/** A space is in no id. */
function keyOf({ session, run }: Filter): string {
  return run === undefined ? session : `${session} ${run}`;
}
