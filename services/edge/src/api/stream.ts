import { isId, parseCursor } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import type { Opened } from "../session/event-stream.ts";
import type { SubscribeRequest } from "../session/life.ts";
import type { StreamSocket } from "../session/port.ts";
import type { Streamed } from "../transport/exchange.ts";
import type { HttpRequest } from "../transport/http.ts";
import { empty, problem, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";
import { NOT_AN_ID } from "./visible.ts";

/** Event streams, as the node runs them. */
export interface Streams {
  /** Takes a place, which the stream's end gives back. */
  take(): "taken" | "full" | "leaving";
  /** Call {@link take} before. */
  open(socket: StreamSocket, principal: Principal, request: SubscribeRequest): Promise<Opened>;
}

export function wantsStream(request: HttpRequest): boolean {
  return request.headers.get("accept")?.includes("text/event-stream") === true;
}

/** GET …/events with `Accept: text/event-stream`: what a subscription brings, for as long as the client listens. */
export function streamEvents(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Reply | Streamed {
  const asked = readRequest(request);
  if (!asked.ok) return problem("invalid", asked.message);
  const { streams } = services;
  return {
    stream: async (socket) => {
      switch (streams.take()) {
        // It came over a connection that was kept alive.
        case "leaving":
          return "cut";
        case "full":
          return problem("overloaded", "this node has as many connections as it may", {
            retryAfterMs: 5_000,
          });
        case "taken":
          return answerOf(await streams.open(socket, principal, asked.request));
      }
    },
  };
}

/**
 * An EventSource that is refused does not come back; cut off, it does, and a load balancer asks the next
 * node at once.
 */
function answerOf(opened: Opened): Reply | "cut" | undefined {
  switch (opened.kind) {
    case "streaming":
      return undefined;
    case "unwanted":
      return "cut";
    // By this status, and no other success, a native EventSource stops coming back.
    case "over":
      return empty(204);
    case "refused": {
      const { code, message } = opened.refusal;
      return problem(code, message, opened.refusal);
    }
  }
}

const BEGINNINGS = ["start", "latest", "snapshot"] as const;

function readRequest({
  params: [session, run],
  query,
  headers,
}: HttpRequest):
  | { readonly ok: true; readonly request: SubscribeRequest }
  | { readonly ok: false; readonly message: string } {
  if (!isId(session)) return { ok: false, message: `session: ${NOT_AN_ID}` };
  if (run !== undefined && !isId(run)) return { ok: false, message: `run: ${NOT_AN_ID}` };
  // Set by the client's own reconnects, and so newer than what stands in the URL.
  const lastEventId = headers.get("last-event-id");
  const hasLast = lastEventId !== undefined && lastEventId !== "";
  const cursor = hasLast ? lastEventId : (query.get("cursor") ?? undefined);
  if (cursor !== undefined && parseCursor(cursor) === undefined) {
    const where = hasLast ? "the header Last-Event-ID" : "query.cursor";
    return { ok: false, message: `${where}: is no cursor of this protocol` };
  }
  const text = query.get("from") ?? "start";
  const from = BEGINNINGS.find((each) => each === text);
  if (from === undefined) {
    return { ok: false, message: "query.from: must be start, latest or snapshot" };
  }
  const deltas = query.get("deltas") ?? "true";
  if (deltas !== "true" && deltas !== "false") {
    return { ok: false, message: "query.deltas: must be true or false" };
  }
  const commandId = undefined;
  return {
    ok: true,
    request: {
      commandId,
      session,
      run,
      cursor,
      from,
      deltas: deltas === "true",
      window: undefined,
    },
  };
}
