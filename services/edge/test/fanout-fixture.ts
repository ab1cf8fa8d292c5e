import type { LogFilter, RunEntry } from "@throughline/broker";
import { parseCursor } from "@throughline/protocol";
import { Attachment } from "../src/fanout/attach.ts";
import { Budget } from "../src/fanout/budget.ts";
import { fanoutMetrics } from "../src/fanout/fanout-metrics.ts";
import { Hubs } from "../src/fanout/hubs.ts";
import { FANOUT_LIMITS, type FanoutLimits, maxBackpressure } from "../src/fanout/limits.ts";
import type { FanoutNode } from "../src/fanout/node.ts";
import type { Subscriber } from "../src/fanout/place.ts";
import { Reads } from "../src/fanout/reads.ts";
import { findStart, type StateSources, type StoredSnapshot } from "../src/fanout/start.ts";
import { Turn } from "../src/fanout/turn.ts";
import { type RunSnapshot, snapshotFrame } from "../src/fanout/run-snapshot.ts";
import { RunStates } from "../src/runs/run-states.ts";
import { SessionViews } from "../src/runs/session-view.ts";
import type { OutgoingFrame, SendResult } from "../src/session/port.ts";
import { FakeLog } from "./fake-log.ts";
import { FakeNet, type FakeSocket, type Received } from "./fake-net.ts";

export const SESSION: LogFilter = { kind: "session", tenant: "t", session: "s" };
export const runFilter = (run: string): LogFilter => ({
  kind: "run",
  tenant: "t",
  session: "s",
  run,
});

export interface FollowOptions {
  readonly cursor?: string;
  readonly from?: "start" | "latest" | "snapshot";
  readonly kernelBytes?: number;
  readonly deltas?: boolean;
  readonly window?: number;
}

/** A node's fan-out over a fake log and fake sockets; nothing happens but in `settle` and what the test calls. */
export class Fixture {
  readonly log: FakeLog = new FakeLog();
  readonly net: FakeNet;
  readonly node: FanoutNode;
  readonly hubs: Hubs;
  readonly timers: { at: number; run: () => void }[] = [];
  readonly snapshots: Map<string, StoredSnapshot> = new Map();
  /** What a session's index of runs says; runs that are not in it are found in the log. */
  readonly index: RunEntry[] = [];
  readonly sources: StateSources;
  readonly reported: Error[] = [];
  readonly logged: object[] = [];
  time = 0;

  constructor(limits: Partial<FanoutLimits> = {}, budgetBytes = 64 * 1024 * 1024) {
    const all = { ...FANOUT_LIMITS, ...limits };
    this.net = new FakeNet(maxBackpressure(all));
    this.node = {
      log: this.log,
      publisher: this.net,
      turn: new Turn(all, this.net.afterTurn),
      budget: new Budget(budgetBytes),
      reads: new Reads(all.reads),
      limits: all,
      metrics: fanoutMetrics(),
      report: (error) => this.reported.push(error),
      now: () => this.time,
      after: (ms, run) => this.timers.push({ at: this.time + ms, run }),
    };
    this.hubs = new Hubs(this.node);
    const snapshots = {
      read: (ref: { readonly run: string }) => Promise.resolve(this.snapshots.get(ref.run)),
    };
    const runs = {
      list: () => Promise.resolve(this.index),
      logged: () => Promise.resolve(this.log.runs()),
    };
    const states = new RunStates(this.log, snapshots, this.node.reads);
    this.sources = {
      snapshots,
      views: new SessionViews(runs, states, { error: (fields) => void this.logged.push(fields) }),
    };
  }

  async follow(filter: LogFilter, options: FollowOptions = {}): Promise<Follower> {
    const hub = await this.hubs.acquire(filter);
    if (hub === undefined) throw new Error("the log has nothing of it");
    const cursor = options.cursor === undefined ? undefined : parseCursor(options.cursor);
    const request = { cursor, from: options.from ?? "start" };
    const start = await findStart(this.node, hub, this.sources, request);
    const follower = new Follower(
      this.net.open(options.kernelBytes),
      { deltas: options.deltas ?? true, window: options.window },
      start,
    );
    follower.attachment = new Attachment(this.node, hub, follower, start);
    follower.socket.onDrain = () => follower.attachment?.drained();
    hub.release();
    return follower;
  }

  advance(ms: number): void {
    this.time += ms;
    for (const timer of this.timers.splice(0)) {
      if (timer.at <= this.time) timer.run();
      else this.timers.push(timer);
    }
  }

  /** The same while the tails deliver: a cursor from ahead of this node waits for them. */
  async followLate(filter: LogFilter, options: FollowOptions = {}): Promise<Follower> {
    let follower: Follower | undefined;
    let failure: unknown;
    void this.follow(filter, options).then(
      (done) => {
        follower = done;
      },
      (error: unknown) => {
        failure = error;
      },
    );
    for (let round = 0; follower === undefined; round += 1) {
      if (failure !== undefined) throw failure;
      if (round > 1_000) throw new Error("it never begins");
      await this.settle();
      this.log.pump(1);
    }
    return follower;
  }

  /** Lets promises and turns run until nothing is left to do. */
  async settle(): Promise<void> {
    let quiet = 0;
    for (let round = 0; quiet < 3; round += 1) {
      if (round > 20_000) throw new Error("it never settles");
      await new Promise((resolve) => setImmediate(resolve));
      quiet = this.net.isIdle ? quiet + 1 : 0;
      this.net.turn();
    }
  }
}

export class Follower implements Subscriber {
  readonly socket: FakeSocket;
  readonly subscriptionId = "sub_1";
  readonly wantsDeltas: boolean;
  readonly window: number | undefined;
  readonly start: Awaited<ReturnType<typeof findStart>>;
  attachment: Attachment | undefined;
  #acknowledged: string | undefined;
  end: "run_ended" | "dropped" | "hole" | "missed_too_much" | "lost" | undefined;

  constructor(
    socket: FakeSocket,
    wants: { deltas: boolean; window: number | undefined },
    start: Follower["start"],
  ) {
    this.socket = socket;
    this.wantsDeltas = wants.deltas;
    this.window = wants.window;
    this.start = start;
  }

  send(frame: OutgoingFrame): SendResult {
    return this.socket.send(JSON.stringify(frame));
  }

  sendSnapshot(snapshot: RunSnapshot): { result: SendResult; bytes: number } {
    const text = snapshotFrame("s", this.subscriptionId, snapshot);
    return { result: this.socket.send(text), bytes: text.length };
  }

  runEnded(): void {
    this.end = "run_ended";
  }

  broken(why: "dropped" | "hole" | "missed_too_much"): void {
    this.end = why;
    this.socket.close();
  }

  lost(): void {
    this.end = "lost";
    this.socket.close();
  }

  /** Takes in the event with this cursor and all before it; says what the edge makes of that. */
  acknowledge(cursor = this.cursor): string {
    const parsed = parseCursor(cursor);
    if (parsed === undefined || this.attachment === undefined) throw new Error("no cursor");
    const { kind } = this.attachment.acknowledge(parsed);
    if (kind === "freed") this.#acknowledged = cursor;
    return kind;
  }

  /** Places that it was led to and has not acknowledged: a repaired message leads to none of its own. */
  get unacknowledged(): number {
    const cursors = [...new Set(this.events.map((event) => event.cursor))];
    return cursors.length - 1 - cursors.indexOf(this.#acknowledged);
  }

  leave(): void {
    this.attachment?.detach();
    this.socket.end(1000, "");
  }

  /** Events with a seq, in the order in which the client had them. */
  get events(): Received[] {
    return this.socket.frames.filter((frame) => frame.seq !== undefined);
  }

  get seqs(): number[] {
    return this.events.map((event) => event.seq ?? 0);
  }

  /** The states that it began with: run → the last seq in them. */
  get snapshots(): Map<string, number> {
    const frames = this.socket.frames.filter((frame) => frame.type === "snapshot");
    return new Map(frames.map((frame) => [frame.run_id ?? "", frame.state?.seq ?? -1]));
  }

  get texts(): string[] {
    return this.socket.frames.flatMap((frame) => frame.payload?.text ?? []);
  }

  get control(): string[] {
    return this.socket.frames.filter((f) => f.seq === undefined && !f.payload).map((f) => f.type);
  }

  get cursor(): string {
    const told = this.socket.frames.findLast((f) => f.seq !== undefined || f.type === "caught_up");
    return told?.cursor ?? this.start.cursor;
  }
}
