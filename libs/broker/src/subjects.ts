import type { RunRef, SessionRef } from "./ids.ts";

/**
 * Every subject that Throughline uses, in one place; SUBJECTS.md is its prose.
 * Tokens are `[A-Za-z0-9_-]{1,64}`, checked where they enter (`isId` of the protocol).
 */
export const streamName = {
  events: (shard: number): string => `TL_EV_${shard}`,
  commands: (shard: number): string => `TL_CM_${shard}`,
  snapshots: (shard: number): string => `TL_SN_${shard}`,
  objects: (shard: number): string => `TL_OB_${shard}`,
} as const;

/** FNV-1a (32 bit) over the session id: part of the stored layout, never to be changed. */
export function shardOf(session: string, shards: number): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < session.length; i += 1) {
    hash = Math.imul(hash ^ session.charCodeAt(i), 0x01000193);
  }
  return (hash >>> 0) % shards;
}

const path = (ref: RunRef, shard: number): string =>
  `${shard}.${ref.tenant}.${ref.session}.${ref.run}`;

export const eventSubject = {
  /** The run's first event, which is also the job. */
  q: (ref: RunRef, shard: number, agent: string): string => `tl.ev.${path(ref, shard)}.q.${agent}`,
  anyQ: (ref: RunRef, shard: number): string => `tl.ev.${path(ref, shard)}.q.*`,
  /** All further events, by the owning worker. */
  e: (ref: RunRef, shard: number): string => `tl.ev.${path(ref, shard)}.e`,
  anyOfRun: (ref: RunRef, shard: number): string => `tl.ev.${path(ref, shard)}.>`,
  anyOfSession: (ref: SessionRef, shard: number): string =>
    `tl.ev.${shard}.${ref.tenant}.${ref.session}.>`,
  anyQOfSession: (ref: SessionRef, shard: number): string =>
    `tl.ev.${shard}.${ref.tenant}.${ref.session}.*.q.*`,
} as const;

export const liveSubject = {
  ofRun: (ref: RunRef, shard: number): string => `tl.lv.${path(ref, shard)}.>`,
  ofSession: (ref: SessionRef, shard: number): string =>
    `tl.lv.${shard}.${ref.tenant}.${ref.session}.>`,
} as const;

export const ephemeralSubject = {
  ofRun: (ref: RunRef, shard: number): string => `tl.ep.${path(ref, shard)}`,
  ofSession: (ref: SessionRef, shard: number): string =>
    `tl.ep.${shard}.${ref.tenant}.${ref.session}.*`,
} as const;

export const commandSubject = (ref: RunRef, shard: number): string => `tl.cm.${path(ref, shard)}`;
export const liveCommandSubject = (ref: RunRef, shard: number): string =>
  `tl.cl.${path(ref, shard)}`;
export const snapshotSubject = (ref: RunRef, shard: number): string => `tl.sn.${path(ref, shard)}`;

export const objectSubject = {
  /** What an object is, or all of it where it is small: its last message counts. */
  about: (ref: SessionRef, shard: number, id: string): string =>
    `tl.ob.${shard}.${ref.tenant}.${ref.session}.m.${id}`,
  /** The chunks of one upload. */
  chunks: (ref: SessionRef, shard: number, upload: string): string =>
    `tl.ob.${shard}.${ref.tenant}.${ref.session}.c.${upload}`,
} as const;

/** Jobs of one agent kind in one shard: the filter of its queue consumer. */
export const queueFilter = (shard: number, agent: string): string =>
  `tl.ev.${shard}.*.*.*.q.${agent}`;
/** All jobs of a shard: the filter of its sweep consumer. */
export const sweepFilter = (shard: number): string => `tl.ev.${shard}.*.*.*.q.*`;
/** Where a worker is asked whether it still holds a run. */
export const ownerSubject = (worker: string): string => `tl.ctl.owner.${worker}`;

/** Where sweeps hear that a cancellation was stored. */
export const CANCEL_SUBJECT = "tl.ctl.cancel";

export interface EventAddress extends RunRef {
  readonly shard: number;
  readonly lane: "q" | "e";
  readonly agent?: string;
}

/** Takes `tl.ev.…` and its live copy `tl.lv.…` apart; undefined for any other subject. */
export function parseEventSubject(subject: string): EventAddress | undefined {
  const [root, kind, shard, tenant, session, run, lane, agent, more] = subject.split(".");
  if (root !== "tl" || (kind !== "ev" && kind !== "lv")) return undefined;
  if (!shard || !tenant || !session || !run || more !== undefined) return undefined;
  const base = { shard: Number(shard), tenant, session, run };
  if (lane === "e" && agent === undefined) return { ...base, lane };
  if (lane === "q" && agent) return { ...base, lane, agent };
  return undefined;
}

/** The run token of `tl.<kind>.<shard>.<tenant>.<session>.<run>…`, without taking the rest apart (hot path). */
export function runOfSubject(subject: string): string {
  let at = 6; // "tl.ev." and its siblings are all six characters
  for (let dots = 0; dots < 3; dots += 1) at = subject.indexOf(".", at) + 1;
  const end = subject.indexOf(".", at);
  return end < 0 ? subject.slice(at) : subject.slice(at, end);
}
