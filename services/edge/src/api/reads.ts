import type { LogFilter, RunRef } from "@throughline/broker";
import { type Cursor, cursorTag, formatCursor, isId, parseCursor } from "@throughline/protocol";
import { authorise } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import { type EventsPage, readEventsPage } from "../fanout/page.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, jsonText, problem, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;

/** GET …/events as a JSON page. */
export async function getEvents(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  if (request.headers.get("accept")?.includes("text/event-stream")) {
    return problem("invalid", "this node serves events as JSON pages only", { status: 406 });
  }
  const query = readQuery(request.query);
  if (!query.ok) return problem("invalid", query.message);
  const place = await visible(services, principal, request.params);
  if ("status" in place) return place;
  const page = await readEventsPage(services, place, query);
  if (page === undefined) return problem("not_found", "the session has no such run");
  return jsonText(200, pageBody(page));
}

/** GET /v1/sessions/{s}/runs/{r}: the newest snapshot. */
export async function getSnapshot(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const place = await visible(services, principal, request.params);
  if ("status" in place) return place;
  const snapshot =
    place.kind === "run" ? await services.snapshots.read(place, "replica") : undefined;
  if (place.kind !== "run" || snapshot === undefined) {
    return problem("not_found", "there is no such run, or no snapshot of it yet");
  }
  const { seq, streamSeq, epoch, state } = snapshot;
  const cursor = formatCursor({ seq, streamSeq, tag: cursorTag(place.run, epoch) });
  return json(200, { state, cursor });
}

/** The path's run or session, if the user may read it; else the refusal. */
async function visible(
  services: ApiServices,
  { tenant, user }: Principal,
  [session, run]: readonly string[],
): Promise<
  (LogFilter & { readonly kind: "session" }) | ({ readonly kind: "run" } & RunRef) | Reply
> {
  if (!isId(session)) return problem("invalid", `session: ${NOT_AN_ID}`);
  if (run !== undefined && !isId(run)) return problem("invalid", `run: ${NOT_AN_ID}`);
  const record = await services.commands.sessions.get({ tenant, session });
  const verdict = authorise({ tenant, user }, "read", record);
  if (!verdict.ok) return problem(verdict.code, verdict.message);
  return run === undefined
    ? { kind: "session", tenant, session }
    : { kind: "run", tenant, session, run };
}

const NOT_AN_ID = "must be 1 to 64 characters of A-Z a-z 0-9 _ -";

function readQuery(
  query: URLSearchParams,
):
  | { readonly ok: true; readonly cursor: Cursor | undefined; readonly limit: number }
  | { readonly ok: false; readonly message: string } {
  const text = query.get("cursor");
  const cursor = text === null ? undefined : parseCursor(text);
  if (text !== null && cursor === undefined) {
    return { ok: false, message: "query.cursor: is no cursor of this protocol" };
  }
  const limit = query.get("limit") ?? String(DEFAULT_LIMIT);
  const isCount = /^[1-9][0-9]{0,3}$/.test(limit) && Number(limit) <= MAX_LIMIT;
  if (!isCount)
    return { ok: false, message: `query.limit: must be a whole number from 1 to ${MAX_LIMIT}` };
  return { ok: true, cursor, limit: Number(limit) };
}

/** Events are joined as they are stored: the edge never parses one. */
function pageBody(page: EventsPage): Uint8Array {
  const { frames, ...said } = page;
  const parts: Uint8Array[] = [Buffer.from('{"events":[')];
  frames.forEach((frame, i) => {
    if (i > 0) parts.push(COMMA);
    parts.push(frame);
  });
  parts.push(Buffer.from(`],${JSON.stringify(said).slice(1)}`));
  return Buffer.concat(parts);
}

const COMMA = Buffer.from(",");
