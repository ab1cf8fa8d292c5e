import type { LogFilter, LogMessage } from "@throughline/broker";
import { type Cursor, cursorTag, formatCursor } from "@throughline/protocol";
import { type Entry, frameMessage, RunMarks } from "./frame.ts";
import type { EventSource } from "./log.ts";
import { type Position, readAfter } from "./position.ts";
import type { RunSnapshot } from "./run-snapshot.ts";
import { type Found, type ResetReason, resumeRun, resumeSession } from "./resume.ts";
import { Slab } from "./slab.ts";
import type { Standing, StateSources } from "./start.ts";

export interface PageRequest {
  readonly cursor: Cursor | undefined;
  /** Events at most. */
  readonly limit: number;
}

/** Events of a run or session as stored, with what a reader must know of its own place. */
export interface EventsPage {
  readonly frames: readonly Uint8Array[];
  /** To ask for the next page with. */
  readonly cursor: string;
  /** More was stored behind it when it was read. */
  readonly more: boolean;
  /** The run has ended, and no page will have more than is stored now. Absent of a session. */
  readonly ended?: true;
  readonly recovered: boolean;
  readonly reason?: ResetReason;
  /** The events follow these: of a run its own, of a session those of its unfinished and newest runs. */
  readonly snapshots?: readonly RunSnapshot[];
}

interface Sources extends StateSources {
  readonly log: EventSource;
}

/** A page ends at the first event that takes it over this. */
const PAGE_BYTES = 1024 * 1024;
const READ_BYTES = 256 * 1024;
const READ_MESSAGES = 256;
const BLOCK_BYTES = 64 * 1024;
const BEGINNING: Position = { streamSeq: 0, next: 0 };

/**
 * Reads one page without a hub: whoever pages through a log may do so once a day. The cursor is
 * judged as for a subscription. Undefined for a run of which nothing is stored.
 * Rejects with BrokerUnavailable.
 */
export async function readEventsPage(
  sources: Sources,
  filter: LogFilter,
  request: PageRequest,
): Promise<EventsPage | undefined> {
  const reader = await PageReader.open(sources.log, filter, request.cursor);
  if (reader === undefined) return snapshotOnly(sources, filter);
  const { cursor } = request;
  if (cursor === undefined) {
    const first = await reader.firstBehind(0);
    // The run's beginning is not stored any more.
    if (filter.kind === "run" && first !== undefined && first.firstSeq > 1) {
      return startOver(sources, reader, request, "cursor_expired");
    }
    return reader.page(BEGINNING, undefined, request.limit, { recovered: true });
  }
  const found = await reader.firstBehind(
    cursor.seq === 0 ? cursor.streamSeq : cursor.streamSeq - 1,
  );
  const judge = filter.kind === "run" ? resumeRun : resumeSession;
  const judged = judge(cursor, reader.origin, found);
  if (judged.kind === "reset") return startOver(sources, reader, request, judged.reason);
  return reader.page(judged.position, formatCursor(cursor), request.limit, { recovered: true });
}

async function startOver(
  sources: Sources,
  reader: PageReader,
  request: PageRequest,
  reason: ResetReason,
): Promise<EventsPage> {
  const { filter } = reader;
  const lost = { recovered: false, reason } as const;
  if (filter.kind === "session") {
    const { position, reached, snapshots } = await sources.views.of(reader);
    return reader.page(position, reached, request.limit, { ...lost, snapshots });
  }
  const snapshot = await sources.snapshots.read(filter, "replica");
  if (snapshot === undefined || cursorTag(filter.run, snapshot.epoch) !== reader.origin) {
    return reader.page(BEGINNING, undefined, request.limit, lost);
  }
  const { seq, streamSeq, state } = snapshot;
  const cursor = formatCursor({ seq, streamSeq, tag: reader.origin });
  const own = await reader.firstBehind(streamSeq - 1);
  const inside = own?.streamSeq === streamSeq && seq < own.lastSeq;
  const position = { streamSeq, next: inside ? seq + 1 : 0 };
  const snapshots = [{ run: filter.run, cursor, json: JSON.stringify(state) }];
  return reader.page(position, cursor, request.limit, { ...lost, snapshots });
}

/** Of an old run there may be only its end state. */
async function snapshotOnly(sources: Sources, filter: LogFilter): Promise<EventsPage | undefined> {
  if (filter.kind !== "run") return undefined;
  const snapshot = await sources.snapshots.read(filter, "leader");
  if (snapshot === undefined) return undefined;
  const { seq, streamSeq, epoch, state } = snapshot;
  const cursor = formatCursor({ seq, streamSeq, tag: cursorTag(filter.run, epoch) });
  const lost = { recovered: false, reason: "cursor_expired" } as const;
  const snapshots = [{ run: filter.run, cursor, json: JSON.stringify(state) }];
  return { frames: [], cursor, more: false, ended: true, ...lost, snapshots };
}

class PageReader implements Standing {
  readonly filter: LogFilter;
  /** Tag of cursors that have seen nothing. */
  readonly origin: string;
  readonly #log: EventSource;
  readonly #ended: { readonly ended?: true };
  /** Where the log ended when it was last looked at: reads up to here are what the leader confirms. */
  #end: number;
  #cursor: string;

  constructor(log: EventSource, filter: LogFilter, origin: string, last: LogMessage | undefined) {
    this.filter = filter;
    this.origin = origin;
    this.#log = log;
    this.#end = last?.streamSeq ?? 0;
    this.#ended = filter.kind === "run" && last?.end === true ? { ended: true } : {};
    this.#cursor = last ? cursorBehind(last) : formatCursor({ seq: 0, streamSeq: 0, tag: origin });
  }

  static async open(
    log: EventSource,
    filter: LogFilter,
    cursor: Cursor | undefined,
  ): Promise<PageReader | undefined> {
    let last = await log.last(filter, "replica");
    // A replica's "none" and "older than what you have" prove nothing.
    if (last === undefined || (cursor !== undefined && last.streamSeq < cursor.streamSeq)) {
      last = await log.last(filter, "leader");
    }
    if (filter.kind === "run") {
      if (last === undefined) return undefined;
      return new PageReader(log, filter, cursorTag(filter.run, last.epoch), last);
    }
    const { epoch } = await log.head(filter);
    return new PageReader(log, filter, cursorTag(filter.session, epoch), last);
  }

  get published(): number {
    return this.#end;
  }

  get cursor(): string {
    return this.#cursor;
  }

  async reach(streamSeq: number): Promise<boolean> {
    const last = await this.#log.last(this.filter, "leader");
    if (last === undefined || last.streamSeq < streamSeq) return false;
    this.#end = last.streamSeq;
    this.#cursor = cursorBehind(last);
    return true;
  }

  async firstBehind(after: number): Promise<Found | undefined> {
    if (after >= this.#end) return undefined;
    const { messages } = await this.#read(after, 1);
    const first = messages[0];
    return first && { ...first, tag: cursorTag(first.run, first.epoch) };
  }

  async page(
    from: Position,
    given: string | undefined,
    limit: number,
    why: Pick<EventsPage, "recovered" | "reason" | "snapshots">,
  ): Promise<EventsPage> {
    const said = { ...this.#ended, ...why };
    let position = from;
    let cursor = given ?? formatCursor({ seq: 0, streamSeq: position.streamSeq, tag: this.origin });
    const frames: Uint8Array[] = [];
    let bytes = 0;
    const slab = new Slab(BLOCK_BYTES);
    const marks = new RunMarks();
    for (;;) {
      if (readAfter(position) >= this.#end) return { frames, cursor, more: false, ...said };
      const { messages, end } = await this.#read(readAfter(position), READ_MESSAGES);
      for (const message of messages) {
        const entry = frameMessage(message, marks.of(message), slab);
        for (let seq = firstWanted(entry, position); seq <= entry.lastSeq; seq += 1) {
          const frame = entry.frames[seq - entry.firstSeq];
          const full = frames.length >= limit || bytes >= PAGE_BYTES;
          if (frame === undefined || full) return { frames, cursor, more: true, ...said };
          frames.push(frame);
          bytes += frame.byteLength;
          cursor = formatCursor({ seq, streamSeq: entry.streamSeq, tag: entry.tag });
        }
        position = { streamSeq: entry.streamSeq, next: 0 };
      }
      if (end) return { frames, cursor, more: false, ...said };
    }
  }

  #read(
    after: number,
    messages: number,
  ): Promise<{ messages: readonly LogMessage[]; end: boolean }> {
    return this.#log.read(this.filter, after, { messages, bytes: READ_BYTES, upTo: this.#end });
  }
}

function cursorBehind({ run, epoch, lastSeq, streamSeq }: LogMessage): string {
  return formatCursor({ seq: lastSeq, streamSeq, tag: cursorTag(run, epoch) });
}

function firstWanted(entry: Entry, position: Position): number {
  return entry.streamSeq === position.streamSeq && position.next > 0
    ? position.next
    : entry.firstSeq;
}
