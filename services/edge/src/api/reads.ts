import type { LogFilter } from "@throughline/broker";
import { type Cursor, cursorTag, formatCursor, parseCursor } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { type EventsPage, readEventsPage } from "../fanout/page.ts";
import { type RunSnapshot, stateMember } from "../fanout/run-snapshot.ts";
import { cursorOf } from "../runs/run-states.ts";
import type { Streamed } from "../transport/exchange.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, jsonText, problem, type Reply } from "../transport/problem.ts";
import { MAX_WAIT_MS } from "./long-polls.ts";
import type { ApiServices } from "./services.ts";
import { streamEvents, wantsStream } from "./stream.ts";
import { limitOf, NOT_AN_ID, visible } from "./visible.ts";

const PAGE = { usual: 100, most: 1_000 } as const;

/** GET …/events: as a stream where that is what the client accepts, else as a JSON page. */
export async function getEvents(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply | Streamed> {
  if (wantsStream(request)) {
    const streamed = streamEvents(services, principal, request);
    if (!request.isHead || "status" in streamed) return streamed;
    const place = await visible(services, principal, request.params);
    return "status" in place ? place : streamed;
  }
  const query = readQuery(request.query);
  if (!query.ok) return problem("invalid", query.message);
  const place = await visible(services, principal, request.params);
  if ("status" in place) return place;
  const read = (): Promise<EventsPage | undefined> => readEventsPage(services, place, query);
  const { waitMs: ms } = query;
  let page: EventsPage | "full" | undefined = await read();
  if (ms > 0 && !isWorth(page)) {
    page = await services.polls.wait(place, read, isWorth, { ms, gone: request.park() });
  }
  if (page === undefined) return problem("not_found", "the session has no such run");
  if (page === "full") {
    const why = "this node has as many connections as it may";
    return problem("overloaded", why, { retryAfterMs: 5_000 });
  }
  return jsonText(200, pageBody(place, page));
}

/** Whether it is better told now than waited for. */
function isWorth(page: EventsPage | undefined): boolean {
  if (page === undefined) return true;
  const { frames, snapshots, ended, recovered } = page;
  return frames.length > 0 || snapshots !== undefined || ended === true || !recovered;
}

/** GET /v1/sessions/{s}/runs/{r}: the run's state as of now, whole, however large. */
export async function getRun(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const place = await visible(services, principal, request.params);
  if ("status" in place) return place;
  if (place.kind !== "run") return problem("invalid", `run: ${NOT_AN_ID}`);
  const found = await services.commands.states.current(place);
  if (found) return json(200, { state: found.state, cursor: cursorOf(place.run, found) });
  // What is left of an old run may have been written by another version: it is the client's to read.
  const old = await services.snapshots.read(place, "leader");
  if (old === undefined) return problem("not_found", "the session has no such run");
  const { seq, streamSeq, epoch, state } = old;
  const cursor = formatCursor({ seq, streamSeq, tag: cursorTag(place.run, epoch) });
  return json(200, { state, cursor });
}

function readQuery(query: URLSearchParams):
  | {
      readonly ok: true;
      readonly cursor: Cursor | undefined;
      readonly limit: number;
      /** 0: not at all. */
      readonly waitMs: number;
    }
  | { readonly ok: false; readonly message: string } {
  const text = query.get("cursor");
  const cursor = text === null ? undefined : parseCursor(text);
  if (text !== null && cursor === undefined) {
    return { ok: false, message: "query.cursor: is no cursor of this protocol" };
  }
  const limited = limitOf(query, PAGE);
  if (!limited.ok) return limited;
  const wait = query.get("wait_ms") ?? "0";
  if (!/^[0-9]{1,6}$/.test(wait)) {
    return { ok: false, message: "query.wait_ms: must be a whole number of milliseconds" };
  }
  return { ok: true, cursor, limit: limited.limit, waitMs: Math.min(Number(wait), MAX_WAIT_MS) };
}

/** Events are joined as they are stored: the edge never parses one. */
function pageBody(filter: LogFilter, page: EventsPage): Uint8Array {
  const { frames, snapshots = [], ...said } = page;
  const parts: Uint8Array[] = [Buffer.from('{"events":[')];
  frames.forEach((frame, i) => {
    if (i > 0) parts.push(COMMA);
    parts.push(frame);
  });
  parts.push(Buffer.from(`],${snapshotsText(filter, snapshots)}${JSON.stringify(said).slice(1)}`));
  return Buffer.concat(parts);
}

const COMMA = Buffer.from(",");

/** A run's is `snapshot`, a session's are `snapshots` and name their runs. */
function snapshotsText(filter: LogFilter, snapshots: readonly RunSnapshot[]): string {
  const [first] = snapshots;
  if (first === undefined) return "";
  const { session } = filter;
  const text = (of: RunSnapshot): string => `${stateMember(session, of)},"cursor":"${of.cursor}"}`;
  if (filter.kind === "run") return `"snapshot":{${text(first)},`;
  const all = snapshots.map((snapshot) => `{"run_id":"${snapshot.run}",${text(snapshot)}`);
  return `"snapshots":[${all.join(",")}],`;
}
