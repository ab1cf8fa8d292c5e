import { isId, SUBPROTOCOL } from "@throughline/protocol";
import type { SubscribeRequest } from "../session/state.ts";
import { bearerOf, type RequestHead } from "./request.ts";

/** What a connect request asks for. `fault` in `subscribe`: to be told once the connection is open. */
export type Handshake =
  | {
      readonly ok: true;
      /** What to answer as `Sec-WebSocket-Protocol`: never the offered list, which may hold a token. */
      readonly protocol: typeof SUBPROTOCOL | "";
      readonly token: string | undefined;
      readonly subscribe: SubscribeRequest | undefined;
      readonly fault: string | undefined;
    }
  | { readonly ok: false; readonly message: string };

const BEARER = "bearer.";

/** Pure. A client that offers subprotocols must offer ours; one that offers none is taken. */
export function readHandshake(head: RequestHead): Handshake {
  const offered = (head.headers.get("sec-websocket-protocol") ?? "")
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  const speaks = offered.includes(SUBPROTOCOL);
  if (offered.length > 0 && !speaks) {
    return {
      ok: false,
      message: `this node speaks ${SUBPROTOCOL} only: offer it as a subprotocol`,
    };
  }
  const entry = offered.find((name) => name.startsWith(BEARER));
  const token = bearerOf(head.headers) ?? entry?.slice(BEARER.length);
  return { ok: true, protocol: speaks ? SUBPROTOCOL : "", token, ...readSubscription(head.query) };
}

function readSubscription(query: URLSearchParams): {
  subscribe: SubscribeRequest | undefined;
  fault: string | undefined;
} {
  const none = { subscribe: undefined, fault: undefined };
  const session = query.get("session");
  const run = query.get("run") ?? undefined;
  if (session === null) {
    return run === undefined ? none : { ...none, fault: "the query has a run but no session" };
  }
  for (const [name, id] of [
    ["session", session],
    ["run", run],
  ] as const) {
    if (id === undefined || isId(id)) continue;
    return { ...none, fault: `query.${name}: must be 1 to 64 characters of A-Z a-z 0-9 _ -` };
  }
  const cursor = query.get("cursor") ?? undefined;
  const subscribe: SubscribeRequest = {
    commandId: undefined,
    session,
    run,
    cursor,
    from: "start",
    deltas: true,
  };
  return { subscribe, fault: undefined };
}
