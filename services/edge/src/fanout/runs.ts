import { cursorTag } from "@throughline/protocol";
import type { LogMessage } from "@throughline/broker";
import { FrameFault } from "./frame.ts";
import { type Delivered, type Delta, Gate, type GateLimits } from "./gate.ts";

/** What a hub keeps of one run that is not over. */
export interface Track {
  readonly run: string;
  readonly epoch: string;
  readonly tag: string;
  /** seq of the last event that came; the next message must follow on. Undefined: none came yet. */
  lastSeq: number | undefined;
  readonly gate: Gate;
}

/** Runs that ended a moment ago: deltas on their own lane can come after the terminal event. */
const ENDED_KEPT = 256;

/** The unfinished runs of a hub: one of a run's hub, any number of a session's. */
export class Runs {
  readonly #limits: GateLimits;
  readonly #tracks: Map<string, Track> = new Map();
  readonly #ended: Set<string> = new Set();
  #latest: Track | undefined;

  constructor(limits: GateLimits) {
    this.#limits = limits;
  }

  get deltaBytes(): number {
    let bytes = 0;
    for (const track of this.#tracks.values()) bytes += track.gate.bytes;
    return bytes;
  }

  get(run: string): Track | undefined {
    return this.#latest?.run === run ? this.#latest : this.#tracks.get(run);
  }

  /** Kept deltas that were shown behind `order`, run by run. */
  *keptDeltas(order: number): IterableIterator<Delta> {
    for (const track of this.#tracks.values()) {
      for (const delta of track.gate.kept) if (delta.order > order) yield delta;
    }
  }

  hasEnded(run: string): boolean {
    return this.#ended.has(run);
  }

  /** Notes the message that the hub begins behind: what its run has next must follow it. */
  began(m: LogMessage): void {
    this.seen(m);
    const track = this.#tracks.get(m.run);
    if (track) track.lastSeq = m.lastSeq;
  }

  /** Notes a message from before the hub's beginning. There may be later ones of its run. */
  seen(m: LogMessage): void {
    if (m.end) this.#noteEnd(m.run);
    else this.#track(m, m);
  }

  /**
   * Notes that a message came; it must follow the run's last. Throws FrameFault otherwise: a
   * hole, a repeat or another incarnation of the run is never delivered.
   */
  came(m: LogMessage): Track {
    const known = this.get(m.run);
    const before = { lastSeq: m.firstSeq - 1, attempt: m.attempt, barrier: 0, settled: 0 };
    const track = known ?? this.#track(m, before);
    const follows = track.lastSeq === undefined || track.lastSeq + 1 === m.firstSeq;
    if (track.epoch !== m.epoch || !follows) {
      throw new FrameFault(
        `run ${m.run}: seq ${m.firstSeq} of epoch ${m.epoch} at ${m.streamSeq} ` +
          `cannot follow seq ${track.lastSeq} of epoch ${track.epoch}`,
      );
    }
    track.lastSeq = m.lastSeq;
    this.#latest = track;
    return track;
  }

  ended(run: string): void {
    this.#tracks.delete(run);
    if (this.#latest?.run === run) this.#latest = undefined;
    this.#noteEnd(run);
  }

  clearDeltas(): void {
    for (const track of this.#tracks.values()) track.gate.clear();
  }

  #track(m: LogMessage, known: Delivered): Track {
    const track: Track = {
      run: m.run,
      epoch: m.epoch,
      tag: cursorTag(m.run, m.epoch),
      lastSeq: undefined,
      gate: new Gate(this.#limits, m.epoch, known),
    };
    this.#tracks.set(m.run, track);
    return track;
  }

  #noteEnd(run: string): void {
    this.#ended.add(run);
    if (this.#ended.size <= ENDED_KEPT) return;
    for (const oldest of this.#ended) {
      this.#ended.delete(oldest);
      break;
    }
  }
}
