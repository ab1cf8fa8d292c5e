import type { Principal } from "../auth/principal.ts";
import { type Refusal, refusal } from "../commands/outcome.ts";
import type { Attachment } from "../fanout/attach.ts";
import type { Subscriber } from "../fanout/place.ts";
import { type RunSnapshot, snapshotFrame } from "../fanout/run-snapshot.ts";
import { type ConnectionServices, countClose } from "./connection-services.ts";
import { sessionsLost } from "./membership.ts";
import type { OutgoingFrame, SendResult, StreamListener, StreamSocket } from "./port.ts";
import type { SubscribeRequest } from "./state.ts";
import { subscribe } from "./subscribe.ts";

/** What a request for a stream is answered with. */
export type Opened =
  | { readonly kind: "streaming" }
  /** The client has the run's end: there is nothing to come back for. */
  | { readonly kind: "over" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

type Phase =
  | { readonly is: "starting" }
  | { readonly is: "streaming"; readonly attachment: Attachment }
  | { readonly is: "ended" };

/** The only subscription of a stream. Named, since frames name it. */
const SUBSCRIPTION = "sub_1";

/**
 * One event stream: a subscription without a connection's other half. Its client says nothing, so it is
 * heard of only by what its socket takes; and it is told by frames, in place of close codes, why the
 * stream ends, so that no end looks like success that is none.
 */
export class EventStream implements Subscriber, StreamListener {
  readonly socket: StreamSocket;
  readonly subscriptionId: string = SUBSCRIPTION;
  readonly wantsDeltas: boolean;
  readonly #services: ConnectionServices;
  readonly #principal: Principal;
  readonly #request: SubscribeRequest;
  readonly #onGone: () => void;
  #phase: Phase = { is: "starting" };
  #isLeaving = false;
  #sentAt: number;
  #membershipAt: number;
  /** Since when it waits for its socket without progress; undefined when it does not. */
  #stuckAt: number | undefined;

  constructor(
    services: ConnectionServices,
    socket: StreamSocket,
    principal: Principal,
    request: SubscribeRequest,
    onGone: () => void,
  ) {
    this.#services = services;
    this.socket = socket;
    this.#principal = principal;
    this.#request = request;
    this.#onGone = onGone;
    this.wantsDeltas = request.deltas;
    this.#sentAt = services.now();
    this.#membershipAt = this.#sentAt;
    socket.listen(this);
  }

  /** Nothing is asked over a stream. */
  readonly isBusy: boolean = false;

  /** Begins to stream, or says why not. Never rejects. */
  async open(): Promise<Opened> {
    const { subscribing } = this.#services;
    const isWanted = (): boolean => this.#phase.is !== "ended";
    const begun = await subscribe(subscribing, this.#principal, this.#request, this, isWanted, {
      ifOver: "tell",
    });
    switch (begun.kind) {
      case "attached":
        if (this.#phase.is === "ended") begun.attachment.detach();
        else this.#phase = { is: "streaming", attachment: begun.attachment };
        return { kind: "streaming" };
      case "ended":
        this.runEnded();
        return { kind: "streaming" };
      case "over":
        this.closed();
        return { kind: "over" };
      case "refused":
        this.closed();
        return { kind: "refused", refusal: begun.refusal };
      case "unwanted":
        return {
          kind: "refused",
          refusal: refusal("unavailable", "the stream was given up", 1_000),
        };
    }
  }

  send(frame: OutgoingFrame): SendResult {
    const result = this.#say(JSON.stringify(frame), undefined);
    // Also before the first event a client that is cut off comes back to where it was: until all states
    // of a session have come, that is before them.
    const hasPlace = frame.type === "subscribed" || frame.type === "caught_up";
    return hasPlace && result !== "dropped" ? this.socket.place(frame.cursor) : result;
  }

  sendSnapshot(snapshot: RunSnapshot): { result: SendResult; bytes: number } {
    const text = snapshotFrame(this.#request.session, SUBSCRIPTION, snapshot);
    // A run's cursor is no place in its session.
    const id = this.#request.run === undefined ? undefined : snapshot.cursor;
    return { result: this.#say(text, id), bytes: text.length };
  }

  runEnded(): void {
    this.#finish({
      type: "unsubscribed",
      subscription_id: SUBSCRIPTION,
      reason: "run_ended",
    });
  }

  broken(why: "dropped" | "hole" | "missed_too_much"): void {
    countClose(this.#services.metrics, 4410);
    if (why === "dropped") this.#cut();
    else this.#goAway(4410, 0, "the log moved on: come back with the cursor");
  }

  lost(): void {
    countClose(this.#services.metrics, 1013);
    this.#goAway(1013, 1_000, "the event log cannot be followed now");
  }

  /** The client, or the response, is gone. */
  closed(): void {
    if (this.#phase.is === "ended") return;
    const phase = this.#phase;
    this.#phase = { is: "ended" };
    if (phase.is === "streaming") phase.attachment.detach();
    this.#onGone();
  }

  goaway(reconnectAfterMs: number, reason: string): void {
    if (this.#phase.is === "ended" || this.#isLeaving) return;
    this.#isLeaving = true;
    this.#say(
      JSON.stringify({ type: "goaway", reconnect_after_ms: reconnectAfterMs, reason }),
      undefined,
    );
    this.socket.retryAfter(reconnectAfterMs);
  }

  close(code: number, reason: string): void {
    if (this.#phase.is === "ended") return;
    countClose(this.#services.metrics, code);
    this.#goAway(code, 0, reason);
  }

  /** Called every few seconds: being stuck, the user's part in the session, a sign of life. */
  sweep(now: number): void {
    if (this.#phase.is !== "streaming") return;
    const { limits } = this.#services;
    const { place, hub, isStuck } = this.#phase.attachment;
    if (!isStuck) this.#stuckAt = undefined;
    else this.#stuckAt ??= now;
    if (this.#stuckAt !== undefined && now - this.#stuckAt > limits.stuckMs) {
      countClose(this.#services.metrics, 4410);
      this.#cut();
      return;
    }
    if (now - this.#membershipAt >= limits.membershipMs) {
      this.#membershipAt = now;
      void this.#checkMembership();
    }
    const published = place.at === "live" ? hub.publishedAt : 0;
    if (now - Math.max(this.#sentAt, published) >= limits.commentMs) {
      this.#sentAt = now;
      this.socket.comment();
    }
  }

  drained(): void {
    if (this.#stuckAt !== undefined) this.#stuckAt = this.#services.now();
    if (this.#phase.is === "streaming") this.#phase.attachment.drained();
  }

  async #checkMembership(): Promise<void> {
    const { session } = this.#request;
    const { sessions } = this.#services.subscribing;
    const lost = await sessionsLost(sessions, this.#principal, [session]);
    if (!lost.has(session)) return;
    this.#finish({ type: "unsubscribed", subscription_id: SUBSCRIPTION, reason: "membership" });
  }

  /** Told to come back, after so long where it has not been told yet. */
  #goAway(code: number, reconnectAfterMs: number, reason: string): void {
    if (code !== 1012 || !this.#isLeaving) this.goaway(reconnectAfterMs, reason);
    this.#end();
  }

  #finish(last: OutgoingFrame): void {
    if (this.#phase.is === "ended") return;
    this.send(last);
    this.#end();
  }

  #end(): void {
    this.closed();
    this.socket.end(1000, "");
  }

  /** What the client holds is not known, or it does not read: nothing more would reach it. */
  #cut(): void {
    this.closed();
    this.socket.close();
  }

  #say(text: string, id: string | undefined): SendResult {
    this.#sentAt = this.#services.now();
    this.#services.metrics.sentControl += 1;
    return id === undefined ? this.socket.send(text) : this.socket.sendWithId(text, id);
  }
}
