import type { ControlFrameOf } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import type { Refusal } from "../commands/outcome.ts";
import type { Attachment } from "../fanout/attach.ts";
import type { Subscriber } from "../fanout/place.ts";
import { type RunSnapshot, snapshotFrame } from "../fanout/run-snapshot.ts";
import { type ConnectionServices, countClose } from "./connection-services.ts";
import { sessionsLost } from "./membership.ts";
import type { OutgoingFrame, SendResult, StreamListener, StreamSocket } from "./port.ts";
import type { SubscribeRequest } from "./life.ts";
import { Progress } from "./progress.ts";
import { subscribe } from "./subscribe.ts";

/** What a request for a stream is answered with. */
export type Opened =
  | { readonly kind: "streaming" }
  /** The client has the run's end: there is nothing to come back for. */
  | { readonly kind: "over" }
  /** The client is gone, or the node is going. */
  | { readonly kind: "unwanted" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** `ending`: all is said, and the client is still reading it. `leave`: told to go before there was anything to tell it on. */
type Phase =
  | { readonly is: "starting"; readonly leave?: Goaway }
  | { readonly is: "streaming"; readonly attachment: Attachment }
  | { readonly is: "ending" }
  | { readonly is: "ended" };

type Goaway = Pick<ControlFrameOf<"goaway">, "reconnect_after_ms" | "reason">;

/** Within which an EventSource comes back from a node that has let it go at a time of its own. */
const RETURN_MS = 500;

/** A native EventSource asks once more, is answered 401, and stops: its page asks for another ticket. */
const EXPIRED = "the credentials of this stream have expired: come back with others";

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
  /** Nobody could acknowledge anything. */
  readonly window: undefined = undefined;
  readonly #services: ConnectionServices;
  readonly #principal: Principal;
  readonly #request: SubscribeRequest;
  readonly #onGone: () => void;
  #phase: Phase = { is: "starting" };
  #isLeaving = false;
  #sentAt: number;
  #membershipAt: number;
  readonly #progress: Progress = new Progress();

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
  /** Most clients only listen, and wait for its end. */
  readonly canLeave: boolean = false;

  /** Begins to stream, or says why not. Never rejects. */
  async open(): Promise<Opened> {
    const { subscribing } = this.#services;
    const isWanted = (): boolean => this.#phase.is === "starting";
    const begun = await subscribe(subscribing, this.#principal, this.#request, this, isWanted, {
      ifOver: "tell",
    });
    switch (begun.kind) {
      case "attached":
        this.#begun(begun.attachment);
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
        return begun;
    }
  }

  #begun(attachment: Attachment): void {
    if (this.#phase.is !== "starting") return attachment.detach();
    const { leave } = this.#phase;
    this.#phase = { is: "streaming", attachment };
    if (leave) this.goaway(leave.reconnect_after_ms, leave.reason);
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
    else this.#goAway(0, "the log moved on: come back with the cursor");
  }

  lost(): void {
    countClose(this.#services.metrics, 1013);
    this.#goAway(1_000, "the event log cannot be followed now");
  }

  closed(): void {
    if (this.#phase.is === "ended") return;
    this.#enter({ is: "ended" });
    this.#onGone();
  }

  /** The stream is ended when that time has come; an EventSource, which heeds nothing else, then comes back at once. */
  goaway(reconnectAfterMs: number, reason: string): void {
    const leave = { reconnect_after_ms: reconnectAfterMs, reason };
    if (this.#phase.is === "starting") this.#phase = { is: "starting", leave };
    else this.#tell(leave, Math.floor(Math.random() * RETURN_MS));
  }

  close(code: number, reason: string): void {
    // Nothing was sent: cut off, it is asked for again as if it had not been.
    if (this.#phase.is === "starting") this.#cut();
    if (this.#phase.is !== "streaming") return;
    countClose(this.#services.metrics, code);
    this.#goAway(0, reason);
  }

  /** Called every few seconds: being stuck, the user's part in the session, a sign of life. */
  sweep(now: number): void {
    if (this.#phase.is === "starting" || this.#phase.is === "ended") return;
    this.socket.hold();
    const { limits } = this.#services;
    if (this.#isStuck(now)) {
      countClose(this.#services.metrics, 4410);
      this.#cut();
      return;
    }
    if (this.#phase.is === "ending") return;
    if ((this.#principal.expiresAt ?? Infinity) <= this.#services.commands.wallClock()) {
      this.#finish({ type: "error", code: "unauthenticated", message: EXPIRED });
      return;
    }
    const { place, hub } = this.#phase.attachment;
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
    this.#progress.drained(this.#services.now());
    if (this.#phase.is === "streaming") this.#phase.attachment.drained();
  }

  /** One that ends waits only for its client to take what was said last. */
  #isStuck(now: number): boolean {
    const isStuck = this.#phase.is === "streaming" ? this.#phase.attachment.isStuck : true;
    const waits = isStuck || this.socket.buffered() > 0;
    return this.#progress.stuckFor(now, waits) > this.#services.limits.stuckMs;
  }

  async #checkMembership(): Promise<void> {
    const { session } = this.#request;
    const { sessions } = this.#services.subscribing;
    const lost = await sessionsLost(sessions, this.#principal, [session]);
    if (!lost.has(session)) return;
    this.#finish({ type: "unsubscribed", subscription_id: SUBSCRIPTION, reason: "membership" });
  }

  /** Told to come back after so long, where it has not been told yet, and ended. */
  #goAway(reconnectAfterMs: number, reason: string): void {
    this.#tell({ reconnect_after_ms: reconnectAfterMs, reason }, reconnectAfterMs);
    this.#end();
  }

  #tell(leave: Goaway, retryMs: number): void {
    if (this.#phase.is !== "streaming" || this.#isLeaving) return;
    this.#isLeaving = true;
    this.send({ type: "goaway", ...leave });
    this.socket.retryAfter(retryMs);
  }

  #finish(last: OutgoingFrame): void {
    if (this.#phase.is === "ending" || this.#phase.is === "ended") return;
    this.send(last);
    this.#end();
  }

  #end(): void {
    if (this.#phase.is === "ended") return;
    this.#enter({ is: "ending" });
    this.socket.end();
  }

  /** What the client holds is not known, or it does not read: nothing more would reach it. */
  #cut(): void {
    this.closed();
    this.socket.close();
  }

  #enter(phase: Phase): void {
    const before = this.#phase;
    this.#phase = phase;
    if (before.is === "streaming") before.attachment.detach();
  }

  #say(text: string, id: string | undefined): SendResult {
    this.#sentAt = this.#services.now();
    this.#services.metrics.sentControl += 1;
    return id === undefined ? this.socket.send(text) : this.socket.sendWithId(text, id);
  }
}
