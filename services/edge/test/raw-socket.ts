import { eventually } from "@throughline/testkit";
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";

/** RFC 6455, section 11.8. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

export interface FrameSpec {
  readonly opcode: number;
  readonly payload?: string | Uint8Array;
  readonly fin?: boolean;
  /** The three reserved bits, 0 to 7. */
  readonly rsv?: number;
  readonly masked?: boolean;
  /** Bytes that the length is written in: 1, 2 (behind 126) or 8 (behind 127); by default the fewest. */
  readonly lengthBytes?: 1 | 2 | 8;
  /** What the header says, where it is not the payload's length. */
  readonly saidLength?: bigint;
}

/** A client's frame, right or wrong: nothing of it is checked. */
export function frameBytes(spec: FrameSpec): Buffer {
  const { opcode, payload = "", fin = true, rsv = 0, masked = true } = spec;
  const body = Buffer.from(payload);
  const length = spec.saidLength ?? BigInt(body.length);
  const lengthBytes = spec.lengthBytes ?? (length < 126n ? 1 : length < 65_536n ? 2 : 8);
  const head = Buffer.alloc(lengthBytes === 1 ? 2 : 2 + lengthBytes);
  head[0] = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  const mark = masked ? 0x80 : 0;
  if (lengthBytes === 1) head[1] = mark | Number(length);
  if (lengthBytes === 2) {
    head[1] = mark | 126;
    head.writeUInt16BE(Number(length), 2);
  }
  if (lengthBytes === 8) {
    head[1] = mark | 127;
    head.writeBigUInt64BE(length, 2);
  }
  if (!masked) return Buffer.concat([head, body]);
  const key = randomBytes(4);
  const hidden = Buffer.from(body.map((byte, i) => byte ^ (key[i % 4] ?? 0)));
  return Buffer.concat([head, key, hidden]);
}

/** The payload of a close frame. */
export function closePayload(code: number, reason: string | Uint8Array = ""): Buffer {
  const head = Buffer.alloc(2);
  head.writeUInt16BE(code);
  return Buffer.concat([head, Buffer.from(reason)]);
}

export interface ServerFrame {
  readonly fin: boolean;
  readonly rsv: number;
  readonly opcode: number;
  readonly payload: Buffer;
}

export interface HandshakeSpec {
  readonly path?: string;
  /** Instead of, or beside, a good handshake's; `undefined` leaves one out. Their case is sent as it is. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly requestLine?: string;
  /** Written as they are behind the others. */
  readonly moreLines?: readonly string[];
}

/** The head of a good handshake, with changes. */
export function handshakeHead(spec: HandshakeSpec = {}): string {
  const headers: Record<string, string | undefined> = {
    Host: "localhost",
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "throughline.v1",
    Authorization: "Bearer dev.acme.ann",
    ...spec.headers,
  };
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}: ${value}`],
  );
  const requestLine = spec.requestLine ?? `GET ${spec.path ?? "/v1/connect"} HTTP/1.1`;
  return [requestLine, ...lines, ...(spec.moreLines ?? []), "", ""].join("\r\n");
}

/** A TCP connection whose every byte is the test's own, and what came back on it. */
export class RawSocket {
  readonly socket: Socket;
  #bytes = Buffer.alloc(0);
  #ended = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (data) => {
      this.#bytes = Buffer.concat([this.#bytes, data]);
    });
    // A reset is an end as well: which of both the kernel sends depends on what it had not read yet.
    socket.on("error", () => undefined);
    socket.on("close", () => (this.#ended = true));
    socket.on("end", () => (this.#ended = true));
  }

  /** `allowHalfOpen`: our side stays open when the server ends its own. */
  static async open(port: number): Promise<RawSocket> {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
    const raw = new RawSocket(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return raw;
  }

  /** Open as a WebSocket, welcomed. */
  static async upgraded(port: number, spec: HandshakeSpec = {}): Promise<RawSocket> {
    const raw = await RawSocket.open(port);
    raw.write(handshakeHead(spec));
    await raw.until(() => raw.texts().length > 0, "a welcome");
    return raw;
  }

  write(bytes: string | Uint8Array): void {
    if (!this.socket.destroyed && this.socket.writable) this.socket.write(bytes);
  }

  /** No more is written; what comes is still read. */
  end(): void {
    this.socket.end();
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Whether the server has ended its side. */
  get ended(): boolean {
    return this.#ended;
  }

  /** All that came, as text of single bytes. */
  get text(): string {
    return this.#bytes.toString("latin1");
  }

  /** Of the first response. */
  get status(): number | undefined {
    const found = /^HTTP\/1\.[01] (\d{3}) /.exec(this.text)?.[1];
    return found === undefined ? undefined : Number(found);
  }

  /** Of the first response, by lower-case name. Throws where the head is not whole. */
  get headers(): Map<string, string> {
    const end = this.text.indexOf("\r\n\r\n");
    if (end === -1)
      throw new Error(`no whole head came: ${JSON.stringify(this.text.slice(0, 200))}`);
    const lines = this.text.slice(0, end).split("\r\n").slice(1);
    return new Map(
      lines.map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
      }),
    );
  }

  /** Behind the first response's head, so far. */
  get body(): string {
    return this.#bodyBytes.toString("utf8");
  }

  /** Whether the first response is here as far as its Content-Length goes. */
  get isAnswered(): boolean {
    if (!this.text.includes("\r\n\r\n")) return false;
    return this.#bodyBytes.length >= Number(this.headers.get("content-length") ?? 0);
  }

  get #bodyBytes(): Buffer {
    const end = this.#bytes.indexOf("\r\n\r\n");
    return end === -1 ? Buffer.alloc(0) : this.#bytes.subarray(end + 4);
  }

  /** The whole frames that came behind the handshake's response. */
  frames(): ServerFrame[] {
    const start = this.#bytes.indexOf("\r\n\r\n");
    const frames: ServerFrame[] = [];
    for (let at = start + 4; start !== -1;) {
      const read = readServerFrame(this.#bytes, at);
      if (read === undefined) break;
      frames.push(read.frame);
      at = read.end;
    }
    return frames;
  }

  texts(): string[] {
    return this.frames()
      .filter(({ opcode }) => opcode === OPCODE.text)
      .map(({ payload }) => payload.toString("utf8"));
  }

  until(look: () => boolean, what: string): Promise<true> {
    return eventually(look, {
      what: () =>
        `${what}; ended: ${this.ended}; last came ${JSON.stringify(this.text.slice(-300))}`,
    });
  }
}

/** A server's frames are not masked; one that is fails the test that reads it. */
function readServerFrame(
  bytes: Buffer,
  at: number,
): { readonly frame: ServerFrame; readonly end: number } | undefined {
  if (bytes.length < at + 2) return undefined;
  const first = bytes.readUInt8(at);
  const second = bytes.readUInt8(at + 1);
  if (second >= 0x80) throw new Error("the server sent a masked frame");
  const headLength = second === 126 ? 4 : second === 127 ? 10 : 2;
  if (bytes.length < at + headLength) return undefined;
  const length =
    second === 126
      ? bytes.readUInt16BE(at + 2)
      : second === 127
        ? Number(bytes.readBigUInt64BE(at + 2))
        : second;
  const end = at + headLength + length;
  if (bytes.length < end) return undefined;
  const payload = Buffer.from(bytes.subarray(at + headLength, end));
  const frame = { fin: first >= 0x80, rsv: (first >> 4) & 7, opcode: first & 15, payload };
  return { frame, end };
}
