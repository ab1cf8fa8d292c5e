import { MAX_FRAME_BYTES } from "@throughline/protocol";
import { STATUS_CODES } from "node:http";
import type { Authenticated } from "../auth/token.ts";
import type { Principal } from "../auth/principal.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Log } from "../log.ts";
import type { ConnectionPort, ConnectionSocket } from "../session/port.ts";
import type { SubscribeRequest } from "../session/life.ts";
import { type Handshake, readHandshake } from "./handshake.ts";
import { problem, type Reply } from "./problem.ts";
import { readHead, type RequestHead } from "./request.ts";
import { WsSocket } from "./socket.ts";
import type { UwsApp, UwsRequest, UwsResponse, UwsSocket, UwsSocketContext } from "./uws.ts";

export interface WebSocketOptions {
  readonly maxBackpressure: number;
  /** Seconds; uWebSockets aborts the process on a value it does not like. */
  readonly idleTimeout: number;
  /** Open connections, and handshakes on their way. */
  readonly connections: Slots;
  readonly handshakes: Slots;
  readonly log: Log;
  authenticate(
    token: string | undefined,
    head: RequestHead,
  ): Promise<Authenticated> | Authenticated;
  /** Whether new connections are taken. */
  isAccepting(): boolean;
  open(socket: ConnectionSocket, principal: Principal, asked: Asked): ConnectionPort;
  /** A socket was opened only to be closed with this code. */
  turnedAway(code: number): void;
}

/** By the connect URL. */
interface Asked {
  readonly subscribe: SubscribeRequest | undefined;
  readonly fault: string | undefined;
}

/**
 * What uWebSockets keeps with a socket. It copies the members onto the socket itself, so none may have
 * the name of a method: a member `subscribe` hides the one that subscribes to topics.
 */
interface SocketData {
  standing: Standing;
}

/** `admitted` becomes `live` when the socket is open; a `refused` one is closed then. */
type Standing =
  | { readonly is: "admitted"; readonly principal: Principal; readonly asked: Asked }
  | { readonly is: "refused"; readonly code: number; readonly reason: string }
  | {
      readonly is: "live";
      readonly socket: WsSocket<SocketData>;
      readonly connection: ConnectionPort;
    };

/**
 * A browser shows its page no status of a refused handshake, only 1006, after which a client comes back
 * with the same token for ever. So who speaks our subprotocol is told by a close code.
 */
const CLOSE_CODE_OF = { unauthenticated: 4401, forbidden: 4403 } as const satisfies Record<
  (Authenticated & { ok: false })["code"],
  number
>;

/** Every socket keeps this topic: the older build discards a turn's publishes when a socket leaves its last one. */
const PERMANENT_TOPIC = "node";
/** uWebSockets closes without a close frame above its own limit: so that limit lies above ours. */
const PAYLOAD_FACTOR = 4;
const NO_COMPRESSION = 0;

/** Checks what uWebSockets would abort the process for. Throws RangeError. */
export function validateOptions(
  options: Pick<WebSocketOptions, "idleTimeout" | "maxBackpressure">,
): void {
  const { idleTimeout, maxBackpressure } = options;
  if (!Number.isInteger(idleTimeout) || idleTimeout < 8 || idleTimeout > 960) {
    throw new RangeError(`idleTimeout must be 8 to 960 whole seconds, it is ${idleTimeout}`);
  }
  if (!Number.isInteger(maxBackpressure) || maxBackpressure < MAX_FRAME_BYTES) {
    throw new RangeError(`maxBackpressure must hold a frame of ${MAX_FRAME_BYTES} bytes`);
  }
}

export function serveWebSocket(app: UwsApp, path: string, options: WebSocketOptions): void {
  validateOptions(options);
  app.ws<SocketData>(path, {
    maxPayloadLength: PAYLOAD_FACTOR * MAX_FRAME_BYTES,
    maxBackpressure: options.maxBackpressure,
    closeOnBackpressureLimit: true,
    idleTimeout: options.idleTimeout,
    sendPingsAutomatically: true,
    compression: NO_COMPRESSION,
    upgrade: (res, req, context) => upgrade(res, req, context, options),
    open: (ws) => {
      const data = ws.getUserData();
      const { standing } = data;
      const socket = new WsSocket(ws);
      if (standing.is === "refused") {
        options.turnedAway(standing.code);
        socket.end(standing.code, standing.reason);
      } else if (standing.is === "admitted") {
        socket.subscribe(PERMANENT_TOPIC);
        const connection = options.open(socket, standing.principal, standing.asked);
        data.standing = { is: "live", socket, connection };
      }
    },
    message: (ws, message, isBinary) => {
      const connection = liveOf(ws)?.connection;
      const bytes = message.byteLength;
      if (bytes > MAX_FRAME_BYTES) connection?.refused("too_large", bytes);
      else if (isBinary) connection?.refused("binary", bytes);
      else connection?.received(Buffer.from(message).toString("utf8"), bytes);
    },
    drain: (ws) => liveOf(ws)?.connection.drained(),
    ping: (ws, message) => liveOf(ws)?.connection.pinged(message.byteLength),
    pong: (ws) => liveOf(ws)?.connection.heard(),
    close: (ws) => {
      const live = liveOf(ws);
      live?.socket.forget();
      live?.connection.closed();
      options.connections.give();
    },
  });
}

function liveOf(ws: UwsSocket<SocketData>): (Standing & { is: "live" }) | undefined {
  const { standing } = ws.getUserData();
  return standing.is === "live" ? standing : undefined;
}

function upgrade(
  res: UwsResponse,
  req: UwsRequest,
  context: UwsSocketContext,
  options: WebSocketOptions,
): void {
  const response = new UpgradeResponse(res);
  try {
    if (!options.isAccepting()) {
      // It came over a connection that was kept alive. Refused, its client would back off; cut off, a load
      // balancer asks the next node, as it does where the port is closed already.
      response.drop();
      return;
    }
    const head = readHead(res, req);
    if (!options.handshakes.tryTake()) {
      response.refuse(problem("overloaded", "too many connects at once", { retryAfterMs: 1_000 }));
      return;
    }
    negotiate(response, head, context, options).catch((error: unknown) => {
      options.log.error({ err: error }, "a connection could not be opened");
      response.refuse(problem("internal", "the node could not do this"));
    });
  } catch (error) {
    options.log.error({ err: error }, "an upgrade handler threw");
    response.refuse(problem("internal", "the node could not do this"));
  }
}

async function negotiate(
  response: UpgradeResponse,
  head: RequestHead,
  context: UwsSocketContext,
  options: WebSocketOptions,
): Promise<void> {
  try {
    const handshake = readHandshake(head);
    if (!handshake.ok) {
      response.refuse(handshake.refusal);
      return;
    }
    const decision = await decide(head, handshake, options);
    if (!("is" in decision)) response.refuse(decision);
    // The client may have gone while its token was checked.
    else if (!response.upgrade(head, handshake, decision, context)) options.connections.give();
  } finally {
    options.handshakes.give();
  }
}

/** The response to an upgrade request: there until it is answered or the client goes. */
class UpgradeResponse {
  #res: UwsResponse | undefined;

  constructor(res: UwsResponse) {
    this.#res = res;
    res.onAborted(() => {
      this.#res = undefined;
    });
  }

  refuse(reply: Reply): void {
    const res = this.#take();
    res?.cork(() => {
      res.writeStatus(`${reply.status} ${STATUS_CODES[reply.status] ?? "Status"}`);
      for (const [name, value] of Object.entries(reply.headers)) res.writeHeader(name, value);
      // Of a refused upgrade nothing more is to come; and a node that drains is about to close it anyway.
      res.end(reply.body, true);
    });
  }

  /** Ends the connection without an answer. */
  drop(): void {
    this.#take()?.close();
  }

  /** False when the client has gone. */
  upgrade(
    head: RequestHead,
    { protocol }: Handshake & { ok: true },
    standing: Standing,
    context: UwsSocketContext,
  ): boolean {
    const res = this.#take();
    if (res === undefined) return false;
    const key = head.headers.get("sec-websocket-key") ?? "";
    const data: SocketData = { standing };
    res.cork(() => res.upgrade(data, key, protocol, "", context));
    return true;
  }

  #take(): UwsResponse | undefined {
    const res = this.#res;
    this.#res = undefined;
    return res;
  }
}

/**
 * A standing comes with a connection slot, which the socket's close gives back: who is turned away by a
 * close code is counted like everybody, for the moment that it takes.
 */
async function decide(
  head: RequestHead,
  handshake: Handshake & { ok: true },
  options: WebSocketOptions,
): Promise<Standing | Reply> {
  try {
    const { protocol, token, subscribe, fault } = handshake;
    const who = await options.authenticate(token, head);
    if (!who.ok && protocol === "") return problem(who.code, who.message);
    if (!options.connections.tryTake()) {
      return problem("overloaded", "this node has as many connections as it may", {
        retryAfterMs: 5_000,
      });
    }
    return who.ok
      ? { is: "admitted", principal: who.principal, asked: { subscribe, fault } }
      : { is: "refused", code: CLOSE_CODE_OF[who.code], reason: who.message };
  } catch (error) {
    options.log.error({ err: error }, "a token could not be checked");
    return problem("unavailable", "the token could not be checked", { retryAfterMs: 1_000 });
  }
}
