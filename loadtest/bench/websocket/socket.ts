/** A WebSocket client over a bare TCP socket, for thousands of them in one process. */
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { clientFrame, FrameReader, OPCODE } from "./frames.ts";

export interface WebSocketTarget {
  readonly host: string;
  readonly port: number;
  /** With its query. */
  readonly path: string;
  readonly protocols: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
}

export interface WebSocketHandlers {
  /** The server has switched protocols; called before any `text`. */
  opened(socket: ClientSocket): void;
  /** The payload is valid during the call only. */
  text(data: Buffer, start: number, end: number): void;
  /** Once, unless `destroy` was called: Refused, or why the connection ended or never was. */
  closed(error: Error): void;
}

export interface ClientSocket {
  send(text: string): void;
  /** Closes at once, without a close frame. */
  destroy(): void;
}

/** Refused with an HTTP status: 503 means "later". */
export class Refused extends Error {
  override readonly name = "Refused";
  readonly status: number;

  constructor(status: number, body: string) {
    super(`the upgrade was answered with ${status}: ${body.slice(0, 300)}`);
    this.status = status;
  }
}

/** Read into by all sockets: what is read is used up before the next read. */
const SHARED = Buffer.allocUnsafe(256 * 1024);
const HEAD_END = "\r\n\r\n";

type Phase =
  | { readonly kind: "opening"; head: string }
  | { readonly kind: "open"; readonly reader: FrameReader }
  | { readonly kind: "closed" };

export function openSocket(target: WebSocketTarget, handlers: WebSocketHandlers): void {
  let phase: Phase = { kind: "opening", head: "" };
  const socket: Socket = connect({
    host: target.host,
    port: target.port,
    noDelay: true,
    onread: {
      buffer: SHARED,
      callback: (size) => {
        const chunk = SHARED.subarray(0, size);
        if (phase.kind === "open") phase.reader.push(chunk, onFrame);
        else if (phase.kind === "opening") open(phase, chunk);
        return true;
      },
    },
  });
  const client: ClientSocket = {
    send: (text) => {
      socket.write(clientFrame(OPCODE.text, Buffer.from(text)));
    },
    destroy: () => {
      phase = { kind: "closed" };
      socket.destroy();
    },
  };
  socket.once("connect", () => socket.write(requestOf(target)));
  socket.once("error", (error) => close(error));
  socket.once("close", () => close(new Error("the connection ended")));

  function close(error: Error): void {
    if (phase.kind === "closed") return;
    client.destroy();
    handlers.closed(error);
  }

  function open(opening: Phase & { kind: "opening" }, chunk: Buffer): void {
    opening.head += chunk.toString("latin1");
    const end = opening.head.indexOf(HEAD_END);
    if (end < 0) return;
    const status = Number(opening.head.slice(9, 12));
    const rest = Buffer.from(opening.head.slice(end + HEAD_END.length), "latin1");
    if (status !== 101) {
      close(new Refused(status, rest.toString("utf8")));
      return;
    }
    const reader = new FrameReader();
    phase = { kind: "open", reader };
    handlers.opened(client);
    if (rest.byteLength > 0) reader.push(rest, onFrame);
  }

  function onFrame(opcode: number, data: Buffer, start: number, end: number): void {
    if (opcode === OPCODE.text) {
      handlers.text(data, start, end);
    } else if (opcode === OPCODE.ping) {
      // Unanswered, the server takes us for a half-open peer.
      socket.write(clientFrame(OPCODE.pong, data.subarray(start, end)));
    } else if (opcode === OPCODE.close) {
      const code = end - start >= 2 ? data.readUInt16BE(start) : 1005;
      close(new Error(`the server closed with ${code} ${data.toString("utf8", start + 2, end)}`));
    }
  }
}

function requestOf(target: WebSocketTarget): string {
  const lines = [
    `GET ${target.path} HTTP/1.1`,
    `Host: ${target.host}:${target.port}`,
    "Upgrade: websocket",
    "Connection: Upgrade",
    `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
    "Sec-WebSocket-Version: 13",
  ];
  if (target.protocols.length > 0) {
    lines.push(`Sec-WebSocket-Protocol: ${target.protocols.join(", ")}`);
  }
  for (const [name, value] of Object.entries(target.headers)) lines.push(`${name}: ${value}`);
  return lines.join("\r\n") + HEAD_END;
}
