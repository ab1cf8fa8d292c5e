import { isId, SUBPROTOCOL } from "@throughline/protocol";
import type { SubscribeRequest } from "../session/life.ts";
import { problem, type Reply } from "./problem.ts";
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
  | { readonly ok: false; readonly refusal: Reply };

const BEARER = "bearer.";
/** Of the WebSocket protocol itself (RFC 6455). */
const VERSION = "13";
/** 16 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/;

/** Pure. A client that offers subprotocols must offer ours; one that offers none is taken. */
export function readHandshake(head: RequestHead): Handshake {
  const refusal = notAHandshake(head);
  if (refusal !== undefined) return { ok: false, refusal };
  const offered = listed(head, "sec-websocket-protocol");
  const speaks = offered.includes(SUBPROTOCOL);
  if (offered.length > 0 && !speaks) {
    const message = `this node speaks ${SUBPROTOCOL} only: offer it as a subprotocol`;
    return { ok: false, refusal: problem("malformed", message) };
  }
  const entry = offered.find((name) => name.startsWith(BEARER));
  const token = bearerOf(head.headers) ?? entry?.slice(BEARER.length);
  return { ok: true, protocol: speaks ? SUBPROTOCOL : "", token, ...readSubscription(head.query) };
}

/**
 * What to answer to a request that opens no WebSocket (RFC 6455, 4.2.1); undefined where it does.
 * uWebSockets looks at the length of the key and at nothing else.
 */
export function notAHandshake(head: RequestHead): Reply | undefined {
  const has = (name: string, entry: string): boolean =>
    listed(head, name).some((found) => found.toLowerCase() === entry);
  if (!has("upgrade", "websocket")) return upgradeRequired("this path takes WebSockets");
  if (head.headers.get("sec-websocket-version") !== VERSION) {
    return upgradeRequired(`this node speaks version ${VERSION} of the WebSocket protocol`);
  }
  const malformed = (message: string): Reply => problem("malformed", message);
  if (!has("connection", "upgrade")) return malformed("the header Connection must name Upgrade");
  // Headers that come twice are joined by a comma, which no key and no version has.
  if (!KEY.test(head.headers.get("sec-websocket-key") ?? "")) {
    return malformed("the header Sec-WebSocket-Key must hold 16 bytes in base64");
  }
  const hasBody =
    head.headers.has("transfer-encoding") || (head.headers.get("content-length") ?? "0") !== "0";
  return hasBody ? malformed("a WebSocket handshake has no body") : undefined;
}

function upgradeRequired(message: string): Reply {
  const headers = {
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Version": VERSION,
  };
  return problem("upgrade_required", message, { headers });
}

/** The entries of a header that is a list. */
function listed(head: RequestHead, name: string): string[] {
  return (head.headers.get(name) ?? "")
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
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
    window: undefined,
  };
  return { subscribe, fault: undefined };
}
