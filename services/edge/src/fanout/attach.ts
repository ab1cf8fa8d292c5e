import { type Cursor, parseCursor } from "@throughline/protocol";
import type { OutgoingFrame, Socket } from "../session/port.ts";
import { type AckOutcome, Credit } from "./credit.ts";
import { Feeder } from "./feeder.ts";
import type { Entry } from "./frame.ts";
import type { Hub } from "./hub.ts";
import { LogFed } from "./log-fed.ts";
import type { FanoutNode } from "./node.ts";
import { type Broken, Outlet } from "./outlet.ts";
import type { Paced, Place, Subscriber } from "./place.ts";
import { type Position, readAfter } from "./position.ts";
import type { RunSnapshot } from "./run-snapshot.ts";
import type { Due } from "./turn.ts";

/** Repaired messages wait for a paced client up to this much; more is a broken log, not a lost copy. */
const MISSED_BYTES = 1024 * 1024;

/** One client's place at one hub: attach, pace, go live, fall back, recover. */
export class Attachment implements Due {
  readonly hub: Hub;
  readonly #node: FanoutNode;
  readonly #subscriber: Subscriber;
  #place: Place;
  /** Of a session only: a run's tail never finds anything missing later. */
  readonly #logFed: LogFed | undefined;
  /** Of a client with a window. */
  readonly #credit: Credit | undefined;
  readonly #outlet: Outlet;
  readonly #feeder: Feeder;

  constructor(
    node: FanoutNode,
    hub: Hub,
    subscriber: Subscriber,
    start: { position: Position; reached: string; snapshots: readonly RunSnapshot[] },
  ) {
    this.#node = node;
    this.hub = hub;
    this.#subscriber = subscriber;
    this.#place = {
      at: "paced",
      since: "start",
      position: start.position,
      cursor: start.reached,
      snapshots: [...start.snapshots],
      waits: "turn",
      page: undefined,
      missed: [],
      shown: 0,
    };
    if (hub.filter.kind === "session") this.#logFed = new LogFed(start.position.streamSeq);
    this.#outlet = new Outlet(subscriber, this);
    if (subscriber.window !== undefined) {
      const tag = hub.filter.kind === "run" ? parseCursor(start.reached)?.tag : undefined;
      this.#credit = new Credit(subscriber.window, tag);
    }
    this.#feeder = new Feeder(
      node,
      hub,
      subscriber,
      this.#outlet,
      this.#credit,
      this.#logFed,
      this,
    );
    hub.hold();
    hub.audience.attach(this);
    node.turn.due(this);
  }

  get place(): Place {
    return this.#place;
  }

  /** Waits for its socket to drain. */
  get isStuck(): boolean {
    const place = this.#place;
    if (place.at === "live") return place.deltas === "withheld";
    return place.at === "paced" && place.waits === "socket";
  }

  drained(): void {
    if (this.isStuck) this.#node.turn.due(this);
  }

  /** What its client has taken in frees credit. Without a window it says nothing new. */
  acknowledge(cursor: Cursor): AckOutcome {
    const place = this.#place;
    if (this.#credit === undefined || place.at !== "paced") return { kind: "behind" };
    const outcome = this.#credit.acknowledge(cursor, place.position.streamSeq);
    const goesOn = place.waits === "credit" || place.waits === "hub";
    if (outcome.kind === "freed" && goesOn) this.wake();
    return outcome;
  }

  step(): number {
    const place = this.#place;
    if (place.at === "detached") return 0;
    if (place.at === "live") {
      if (this.hub.isEnded) this.#finish();
      else if (place.deltas === "withheld") this.#restoreDeltas();
      return 0;
    }
    if (this.#socket.buffered() > this.#node.limits.lowWater) {
      place.waits = "socket";
      return 0;
    }
    let sent = 0;
    this.#socket.cork(() => {
      sent = this.#feeder.feed(place);
    });
    return sent;
  }

  /** After a turn with publishes: is this socket still keeping up? */
  look(): void {
    const place = this.#place;
    if (place.at !== "live") return;
    const buffered = this.#socket.buffered();
    if (buffered <= this.#node.limits.softLimit) return;
    if (buffered > this.#node.limits.hardLimit) this.fallBehind();
    else if (place.deltas === "on") this.#withholdDeltas();
  }

  /** Leaves the topics and is fed from here on. */
  fallBehind(): void {
    const place = this.#place;
    if (place.at !== "live") return;
    // Said before leaving, also since a send flushes: the older uWebSockets build discards what
    // was published in the turn in which a socket leaves its last topic.
    if (place.deltas !== "withheld" && !this.#say("lagging")) return;
    this.#leaveTopics();
    this.#node.metrics.demoted += 1;
    this.#enter({
      at: "paced",
      since: "lag",
      position: { streamSeq: this.hub.published, next: 0 },
      cursor: this.hub.cursor,
      waits: "socket",
      snapshots: [],
      page: undefined,
      missed: [],
      shown: 0,
    });
    if (this.#socket.buffered() <= this.#node.limits.lowWater) this.#node.turn.due(this);
  }

  /** A repaired message, older in the stream than what live clients have: sent to who has passed it without it. */
  missed(entry: Entry): void {
    const place = this.#place;
    if (place.at === "detached" || this.#logFed?.has(entry.streamSeq)) return;
    if (place.at === "live") {
      this.#socket.cork(() => void this.#feeder.sendMissed(entry, this.hub.cursor));
      return;
    }
    // It comes in its place.
    if (readAfter(place.position) < entry.streamSeq) return;
    place.missed.push(entry);
    if (place.missed.reduce((sum, e) => sum + e.bytes, 0) > MISSED_BYTES) {
      this.break("missed_too_much");
    } else if (place.waits === "hub") this.#node.turn.due(this);
  }

  lost(error: Error): void {
    this.detach();
    this.#subscriber.lost(error);
  }

  detach(): void {
    if (this.#place.at === "detached") return;
    if (this.#place.at === "live") this.#leaveTopics();
    this.#enter({ at: "detached" });
    this.hub.audience.detach(this);
    this.hub.release();
  }

  get #socket(): Socket {
    return this.#subscriber.socket;
  }

  isAt(place: Paced): boolean {
    return this.#place === place;
  }

  wake(): void {
    this.#node.turn.due(this);
  }

  break(why: Broken): void {
    this.detach();
    this.#subscriber.broken(why);
  }

  /** Nothing more is published behind its position. Level with a hub that is level, it goes live. */
  arrived(place: Paced, after: number): void {
    if (after > this.hub.published || !this.hub.isLevel) {
      this.#awaitHub(place);
      return;
    }
    if (!this.#sayLevel(place)) return;
    if (this.hub.isEnded) {
      this.#finish();
      return;
    }
    if (this.#credit !== undefined) {
      place.since = "window";
      this.#awaitHub(place);
      if (this.#subscriber.wantsDeltas && this.#credit.left > 0) this.#showDeltas(place);
      return;
    }
    // One synchronous step with the sends above: what is published from now on comes by the topic.
    this.#socket.subscribe(this.hub.durableTopic);
    this.#enter({ at: "live", deltas: "unwanted" });
    this.hub.audience.goLive(this);
    if (this.#subscriber.wantsDeltas) this.#joinDeltas();
  }

  #enter(place: Place): void {
    this.#node.metrics.lagging += Number(isLagging(place)) - Number(isLagging(this.#place));
    this.#place = place;
  }

  #awaitHub(place: Paced): void {
    place.waits = "hub";
    this.hub.audience.awaitMove(this);
  }

  #sayLevel({ since, cursor }: Paced): boolean {
    if (since === "window") return true;
    const level: OutgoingFrame =
      since === "start"
        ? { type: "caught_up", subscription_id: this.#id, cursor }
        : { type: "recovered", subscription_id: this.#id };
    if (since === "lag") this.#node.metrics.recovered += 1;
    return this.#outlet.say(level);
  }

  /** To a client with a window: behind all events, so that no delta overtakes the one that it follows. */
  #showDeltas(place: Paced): void {
    for (const { order, frames } of this.hub.keptDeltas(place.shown)) {
      place.shown = Math.max(place.shown, order);
      if (!frames.every((frame) => this.#outlet.send(frame))) return;
    }
  }

  #joinDeltas(): void {
    for (const { frames } of this.hub.keptDeltas(0)) {
      if (!frames.every((frame) => this.#outlet.send(frame))) return;
    }
    this.#socket.subscribe(this.hub.deltaTopic);
    this.#enter({ at: "live", deltas: "on" });
  }

  #withholdDeltas(): void {
    if (!this.#say("lagging")) return;
    this.#socket.unsubscribe(this.hub.deltaTopic);
    this.#node.metrics.withheld += 1;
    this.#enter({ at: "live", deltas: "withheld" });
  }

  #restoreDeltas(): void {
    if (this.#socket.buffered() > this.#node.limits.lowWater) return;
    this.#socket.cork(() => {
      if (!this.#say("recovered")) return;
      this.#node.metrics.recovered += 1;
      this.#joinDeltas();
    });
  }

  #leaveTopics(): void {
    this.#socket.unsubscribe(this.hub.durableTopic);
    this.#socket.unsubscribe(this.hub.deltaTopic);
    this.hub.audience.leaveLive(this);
  }

  #finish(): void {
    this.detach();
    this.#subscriber.runEnded();
  }

  get #id(): string {
    return this.#subscriber.subscriptionId;
  }

  #say(type: "lagging" | "recovered"): boolean {
    return this.#outlet.say({ type, subscription_id: this.#id });
  }
}

/** Without deltas, or off its topics, for having been slow. */
function isLagging(place: Place): boolean {
  return place.at === "live"
    ? place.deltas === "withheld"
    : place.at === "paced" && place.since === "lag";
}
