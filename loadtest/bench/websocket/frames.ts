/**
 * WebSocket frames, just enough to count them. A client library would be the bottleneck: at
 * fan-out 100 the viewers take as many frames as the server sends, on the same machine.
 */

export const OPCODE = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** One whole frame: its payload is `data[start, end)`, valid during the call only. */
export type OnFrame = (opcode: number, data: Buffer, start: number, end: number) => void;

const NOTHING = Buffer.alloc(0);

/** Cuts a server's byte stream into frames. Servers do not mask, and neither server here fragments. */
export class FrameReader {
  #rest: Buffer = NOTHING;

  push(chunk: Buffer, onFrame: OnFrame): void {
    const data = this.#rest.byteLength === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    for (;;) {
      const start = payloadAt(data, at);
      if (start === undefined) break;
      const end = start + payloadLength(data, at);
      if (end > data.byteLength) break;
      onFrame((data[at] ?? 0) & 0x0f, data, start, end);
      at = end;
    }
    // Copied: the chunk is a buffer that the next read overwrites.
    this.#rest = at === data.byteLength ? NOTHING : Buffer.from(data.subarray(at));
  }
}

/** Where the payload of the frame at `at` begins; undefined while its head is not whole. */
function payloadAt(data: Buffer, at: number): number | undefined {
  const left = data.byteLength - at;
  if (left < 2) return undefined;
  const short = (data[at + 1] ?? 0) & 0x7f;
  const head = short === 126 ? 4 : short === 127 ? 10 : 2;
  return left < head ? undefined : at + head;
}

function payloadLength(data: Buffer, at: number): number {
  const short = (data[at + 1] ?? 0) & 0x7f;
  if (short === 126) return data.readUInt16BE(at + 2);
  if (short === 127) return Number(data.readBigUInt64BE(at + 2));
  return short;
}

/** A client's frame. The mask is there because it must be, and zero because nobody is in between. */
export function clientFrame(opcode: number, payload: Uint8Array): Buffer {
  const size = payload.byteLength;
  const head = size < 126 ? 2 : size < 65_536 ? 4 : 10;
  const frame = Buffer.alloc(head + 4 + size);
  frame[0] = 0x80 | opcode;
  if (size < 126) frame[1] = 0x80 | size;
  else if (size < 65_536) {
    frame[1] = 0x80 | 126;
    frame.writeUInt16BE(size, 2);
  } else {
    frame[1] = 0x80 | 127;
    frame.writeBigUInt64BE(BigInt(size), 2);
  }
  frame.set(payload, head + 4);
  return frame;
}
