import type { OutgoingFrame, Socket } from "../session/port.ts";
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
    };
    if (hub.filter.kind === "session") this.#logFed = new LogFed(start.position.streamSeq);
    this.#outlet = new Outlet(subscriber, this);
    this.#feeder = new Feeder(node, hub, subscriber, this.#outlet, this.#logFed, this);
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
    this.#place = {
      at: "paced",
      since: "lag",
      position: { streamSeq: this.hub.published, next: 0 },
      cursor: this.hub.cursor,
      waits: "socket",
      snapshots: [],
      page: undefined,
      missed: [],
    };
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
    this.#place = { at: "detached" };
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
      place.waits = "hub";
      this.hub.audience.awaitMove(this);
      return;
    }
    const level: OutgoingFrame =
      place.since === "start"
        ? { type: "caught_up", subscription_id: this.#id, cursor: place.cursor }
        : { type: "recovered", subscription_id: this.#id };
    if (!this.#outlet.say(level)) return;
    if (place.since === "lag") this.#node.metrics.recovered += 1;
    if (this.hub.isEnded) {
      this.#finish();
      return;
    }
    // One synchronous step with the sends above: what is published from now on comes by the topic.
    this.#socket.subscribe(this.hub.durableTopic);
    this.#place = { at: "live", deltas: "unwanted" };
    this.hub.audience.goLive(this);
    if (this.#subscriber.wantsDeltas) this.#joinDeltas();
  }

  #joinDeltas(): void {
    for (const frame of this.hub.keptDeltas()) if (!this.#outlet.send(frame)) return;
    this.#socket.subscribe(this.hub.deltaTopic);
    this.#place = { at: "live", deltas: "on" };
  }

  #withholdDeltas(): void {
    if (!this.#say("lagging")) return;
    this.#socket.unsubscribe(this.hub.deltaTopic);
    this.#node.metrics.withheld += 1;
    this.#place = { at: "live", deltas: "withheld" };
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
