import type { LogFilter, RunRef } from "@throughline/broker";
import { type Cursor, cursorTag, formatCursor } from "@throughline/protocol";
import type { Entry } from "./frame.ts";
import type { Hub } from "./hub.ts";
import type { FanoutNode } from "./node.ts";
import type { Position } from "./position.ts";
import type { RunSnapshot } from "./run-snapshot.ts";
import { type Resumption, type ResetReason, resumeRun, resumeSession } from "./resume.ts";

/** What a snapshot store offers of a run. */
export interface StoredSnapshot {
  readonly state: unknown;
  readonly seq: number;
  readonly streamSeq: number;
  readonly epoch: string;
}

export interface SnapshotSource {
  read(ref: RunRef, from: "leader" | "replica"): Promise<StoredSnapshot | undefined>;
}

/** A session as of one place: the states of its runs there, and what follows begins there. */
export interface SessionView {
  readonly position: Position;
  readonly reached: string;
  readonly snapshots: readonly RunSnapshot[];
}

/** Where a reader of a session's log stands: a hub, or who reads one page. */
export interface Standing {
  readonly filter: LogFilter;
  /** Stream sequence through which it has seen everything, and the cursor of the newest event there. */
  readonly published: number;
  readonly cursor: string;
  /** Comes to see through `streamSeq`; false when it does not in time. */
  reach(streamSeq: number): Promise<boolean>;
}

/** What a subscription may begin with instead of events. */
export interface StateSources {
  readonly snapshots: SnapshotSource;
  readonly views: { of(standing: Standing): Promise<SessionView> };
}

export interface StartRequest {
  readonly cursor: Cursor | undefined;
  readonly from: "start" | "latest" | "snapshot";
}

/** Where a subscription begins, and what is said of it. */
export interface Start {
  readonly position: Position;
  /** Of the position: what a client has that has had everything so far. */
  readonly reached: string;
  /** What `subscribed` names. */
  readonly cursor: string;
  readonly recovered: boolean;
  readonly mode: "replay" | "snapshot" | "live";
  readonly reason?: ResetReason;
  readonly snapshots: readonly RunSnapshot[];
}

const NO_SNAPSHOTS = { snapshots: [] } as const;

/** The hub does not come to know in time what the leader has. The client may try again. */
export class HubBehind extends Error {
  override readonly name = "HubBehind";
}

/**
 * Finds where a subscription begins (ARCHITECTURE §5). Reads through the hub, so that what it
 * brings into memory is what the client is then fed from.
 * Rejects with BrokerUnavailable or HubBehind.
 */
export async function findStart(
  node: FanoutNode,
  hub: Hub,
  sources: StateSources,
  request: StartRequest,
): Promise<Start> {
  if (request.cursor !== undefined) {
    const judged = await judge(node, hub, request.cursor);
    if (judged.kind === "reset") return fallBack(hub, sources, judged.reason);
    const cursor = formatCursor(request.cursor);
    return {
      position: judged.position,
      ...at(cursor),
      recovered: true,
      mode: "replay",
      ...NO_SNAPSHOTS,
    };
  }
  if (request.from === "latest") {
    const position = { streamSeq: hub.published, next: 0 };
    return { position, ...at(hub.cursor), recovered: true, mode: "live", ...NO_SNAPSHOTS };
  }
  if (request.from === "snapshot") {
    const start = await fromState(hub, sources);
    if (start) return { ...start, recovered: true };
  }
  const first = await firstBehind(hub, 0);
  // The run's beginning is not stored any more: said openly, never passed over.
  if (hub.filter.kind === "run" && first !== undefined && first.firstSeq > 1) {
    return fallBack(hub, sources, "cursor_expired");
  }
  return fromStored(hub, first, true);
}

async function judge(node: FanoutNode, hub: Hub, cursor: Cursor): Promise<Resumption> {
  const { filter } = hub;
  const origin = await hub.originTag();
  const isForeign = filter.kind === "run" && cursor.tag !== origin;
  const isBeyond = cursor.seq > 0 && cursor.streamSeq > hub.published;
  if (isForeign || (isBeyond && !(await isAhead(node, hub, cursor)))) {
    return { kind: "reset", reason: "cursor_invalid" };
  }
  // What has seen nothing cannot be repeated to; and a session's origin may lie behind all its messages.
  let after = cursor.streamSeq - 1;
  if (cursor.seq === 0)
    after = filter.kind === "run" ? 0 : Math.min(cursor.streamSeq, hub.published);
  const found = await firstBehind(hub, after);
  const judged = filter.kind === "run" ? resumeRun : resumeSession;
  return clamped(judged(cursor, origin, found), hub);
}

/** The cursor is from ahead of this hub: another node saw more, or it is of another log. The leader knows. */
async function isAhead(node: FanoutNode, hub: Hub, cursor: Cursor): Promise<boolean> {
  const last = await node.reads.run(() => node.log.last(hub.filter, "leader"));
  if (last === undefined || last.streamSeq < cursor.streamSeq) return false;
  if (await hub.reach(cursor.streamSeq)) return true;
  throw new HubBehind(`the hub is at ${hub.published}, the log at ${last.streamSeq}`);
}

function clamped(resumption: Resumption, hub: Hub): Resumption {
  if (resumption.kind === "reset" || resumption.position.streamSeq <= hub.published)
    return resumption;
  return { kind: "resume", position: { streamSeq: hub.published, next: 0 } };
}

async function fallBack(hub: Hub, sources: StateSources, reason: ResetReason): Promise<Start> {
  const start = await fromState(hub, sources);
  if (start) return { ...start, recovered: false, reason };
  return { ...(await fromStored(hub, await firstBehind(hub, 0), false)), reason };
}

async function fromStored(hub: Hub, first: Entry | undefined, recovered: boolean): Promise<Start> {
  const streamSeq = first === undefined || first.prev === 0 ? 0 : first.streamSeq - 1;
  const cursor = formatCursor({ seq: 0, streamSeq, tag: await hub.originTag() });
  return {
    position: { streamSeq, next: 0 },
    ...at(cursor),
    recovered,
    mode: "replay",
    ...NO_SNAPSHOTS,
  };
}

type FromState = Pick<Start, "position" | "reached" | "cursor" | "mode" | "snapshots">;

/**
 * No cursor of anything: who comes back with it is given the states again. A session's may be on
 * their way for a while, and one who lost the link meanwhile has not had them all.
 */
const AGAIN = formatCursor({ seq: 0, streamSeq: 0, tag: "again" });

async function fromState(hub: Hub, sources: StateSources): Promise<FromState | undefined> {
  const { filter } = hub;
  if (filter.kind === "session") {
    const view = await sources.views.of(hub);
    const cursor = view.snapshots.length === 0 ? view.reached : AGAIN;
    return { ...view, cursor, mode: "snapshot" };
  }
  return fromSnapshot(hub, filter, sources.snapshots);
}

async function fromSnapshot(
  hub: Hub,
  ref: RunRef,
  snapshots: SnapshotSource,
): Promise<FromState | undefined> {
  const snapshot = await snapshots.read(ref, "replica");
  const tag = await hub.originTag();
  if (snapshot === undefined || cursorTag(ref.run, snapshot.epoch) !== tag) return undefined;
  if (!(await hub.reach(snapshot.streamSeq))) return undefined;
  const { seq, streamSeq } = snapshot;
  const found = await firstBehind(hub, streamSeq - 1);
  const inside = found?.streamSeq === streamSeq && seq < found.lastSeq;
  const cursor = formatCursor({ seq, streamSeq, tag });
  return {
    position: { streamSeq, next: inside ? seq + 1 : 0 },
    ...at(cursor),
    mode: "snapshot",
    snapshots: [{ run: ref.run, cursor, json: JSON.stringify(snapshot.state) }],
  };
}

function at(cursor: string): Pick<Start, "reached" | "cursor"> {
  return { reached: cursor, cursor };
}

async function firstBehind(hub: Hub, after: number): Promise<Entry | undefined> {
  let entry = hub.next(after);
  while (entry === "log") entry = hub.next(after, await hub.fetch(after));
  return entry;
}
