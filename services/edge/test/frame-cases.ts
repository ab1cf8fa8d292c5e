import { closePayload, frameBytes, type FrameSpec, OPCODE } from "./raw-socket.ts";

/**
 * What a client's bytes on an open WebSocket come to, as data.
 *
 * `answers` are words for what the server sends: `pong …`, `close 1009`, `close` (without a code), the type
 * of a text frame (`heartbeat.ack`, `error malformed`), and `end` for the end of its side. Without `end` the
 * connection goes on, and nothing else was sent. `end` without a `close` is what a client sees as 1006.
 */
export interface FrameCase {
  readonly name: string;
  /** Written one after the other. */
  readonly writes: readonly Uint8Array[];
  readonly answers: readonly string[];
}

const MAX_FRAME = 512 * 1024;
const MOST = 4 * MAX_FRAME;

const BEAT = '{"type":"heartbeat","id":"h","payload":{"ts":1}}';
/** The same with blanks behind it, `bytes` long. */
const beat = (bytes: number): string => BEAT.padEnd(bytes, " ");

const text = (payload: string | Uint8Array, more: Partial<FrameSpec> = {}): Buffer =>
  frameBytes({ opcode: OPCODE.text, payload, ...more });
const more = (payload: string | Uint8Array, spec: Partial<FrameSpec> = {}): Buffer =>
  frameBytes({ opcode: OPCODE.continuation, payload, ...spec });
const ping = (payload: string | Uint8Array, spec: Partial<FrameSpec> = {}): Buffer =>
  frameBytes({ opcode: OPCODE.ping, payload, ...spec });
const close = (payload: Uint8Array, spec: Partial<FrameSpec> = {}): Buffer =>
  frameBytes({ opcode: OPCODE.close, payload, ...spec });
const started = { fin: false } as const;
const bytes = (...list: number[]): Buffer => Buffer.from(list);

function cases(
  answers: readonly string[],
  rows: Readonly<Record<string, readonly Uint8Array[]>>,
): FrameCase[] {
  return Object.entries(rows).map(([name, writes]) => ({ name, writes, answers }));
}

const GOES_ON = ["heartbeat.ack"];
const CUT = ["end"];

/** RFC 6455, 5.2: seven bits, 16 and 64. */
const LENGTHS: readonly FrameCase[] = [
  ...cases(GOES_ON, {
    "125 bytes": [text(beat(125))],
    "126 bytes": [text(beat(126))],
    "65,535 bytes": [text(beat(65_535))],
    "65,536 bytes": [text(beat(65_536))],
    "as many bytes as a frame may have": [text(beat(MAX_FRAME))],
    // Not the fewest bytes that would do: the RFC forbids it to clients and asks no server to look.
    "48 bytes, the length in 16 bits": [text(BEAT, { lengthBytes: 2 })],
    "48 bytes, the length in 64 bits": [text(BEAT, { lengthBytes: 8 })],
    "a frame that comes byte by byte": [...text(BEAT)].map((byte) => bytes(byte)),
  }),
  ...cases(["error malformed"], {
    "no bytes of text": [text("")],
    "no bytes, binary": [frameBytes({ opcode: OPCODE.binary })],
    "text in a binary frame": [frameBytes({ opcode: OPCODE.binary, payload: BEAT })],
  }),
  ...cases(["heartbeat.ack", "heartbeat.ack"], {
    "two frames at once": [Buffer.concat([text(BEAT), text(BEAT)])],
  }),
];

const TOO_LARGE: readonly FrameCase[] = [
  ...cases(["close 1009", "end"], {
    "a byte more than a frame may have": [text(beat(MAX_FRAME + 1))],
    "four times what a frame may have": [text(beat(MOST))],
    "fragments that are too much together": [
      text(beat(MAX_FRAME - 1), started),
      more("  ", started),
      more(""),
    ],
  }),
  // uWebSockets goes away by itself above its own limit, before there is anything to answer.
  ...cases(CUT, {
    "a byte more than four times": [text(beat(MOST + 1))],
    "fragments of more than four times together": [text(beat(MOST), started), more("  ")],
    "a length of 2^53": [text(BEAT, { lengthBytes: 8, saidLength: 2n ** 53n })],
    "a length whose low half would do": [
      text(BEAT, { lengthBytes: 8, saidLength: 2n ** 32n + BigInt(BEAT.length) }),
    ],
    "a length with the top bit set": [text(BEAT, { lengthBytes: 8, saidLength: 2n ** 63n })],
  }),
];

/** RFC 6455, 5.4. */
const FRAGMENTS: readonly FrameCase[] = [
  ...cases(GOES_ON, {
    "two fragments": [text(BEAT.slice(0, 9), started), more(BEAT.slice(9))],
    "a fragment for each byte": [...Buffer.from(BEAT)].map((byte, i) =>
      frameBytes({
        opcode: i === 0 ? OPCODE.text : OPCODE.continuation,
        payload: bytes(byte),
        fin: i === BEAT.length - 1,
      }),
    ),
    "empty fragments around it": [text("", started), more(BEAT, started), more("")],
    "a cut in the middle of a character": [
      text(Buffer.concat([Buffer.from('{"type":"heartbeat","x":"'), bytes(0xc3)]), started),
      more(Buffer.concat([bytes(0xa9), Buffer.from('","id":"h","payload":{"ts":1}}')])),
    ],
    "a pong between fragments": [
      text(BEAT.slice(0, 9), started),
      frameBytes({ opcode: OPCODE.pong, payload: "unasked" }),
      more(BEAT.slice(9)),
    ],
  }),
  ...cases(["pong between", "heartbeat.ack"], {
    "a ping between fragments is answered at once": [
      text(BEAT.slice(0, 9), started),
      ping("between"),
      more(BEAT.slice(9)),
    ],
  }),
  ...cases(["close 1000", "end"], {
    "a close between fragments": [text("{", started), close(closePayload(1000))],
  }),
  ...cases(CUT, {
    "a continuation of nothing": [more(BEAT)],
    "an unfinished continuation of nothing": [more(BEAT, started)],
    "a new text where a continuation is due": [text("{", started), text(BEAT)],
  }),
];

/** RFC 6455, 5.5.2. */
const PINGS: readonly FrameCase[] = [
  ...cases(["pong hello"], { "a ping has its payload back": [ping("hello")] }),
  ...cases(["pong "], { "an empty ping": [ping("")] }),
  ...cases([`pong ${"p".repeat(125)}`], { "the longest ping": [ping("p".repeat(125))] }),
  ...cases(["pong \u0000\u00ff\u00fe"], { "a ping of any bytes": [ping(bytes(0, 255, 254))] }),
  ...cases(["pong 1", "pong 2", "pong 3"], {
    "pings at once have an answer each": [Buffer.concat([ping("1"), ping("2"), ping("3")])],
  }),
  ...cases([], {
    "a pong that nobody asked for": [frameBytes({ opcode: OPCODE.pong, payload: "x" })],
  }),
  ...cases(CUT, {
    "a ping of 126 bytes": [ping("p".repeat(126))],
    "a ping in fragments": [ping("p", started)],
    "a pong of 126 bytes": [frameBytes({ opcode: OPCODE.pong, payload: "p".repeat(126) })],
  }),
];

/** RFC 6455, 8.1. uWebSockets cuts where 1007 would be due: it tells the application nothing. */
const NOT_UTF8: readonly FrameCase[] = cases(CUT, {
  "a byte that is in no text": [text(bytes(0xff))],
  "a slash in two bytes": [text(bytes(0xc0, 0xaf))],
  "half of a surrogate pair": [text(bytes(0xed, 0xa0, 0x80))],
  "beyond the last character": [text(bytes(0xf4, 0x90, 0x80, 0x80))],
  "a character that is not finished": [text(bytes(0xe2, 0x82))],
  "in the first of two fragments": [text(bytes(0xff), started), more("x")],
});

/** RFC 6455, 5.1 and 5.2. uWebSockets cuts where 1002 would be due. */
const FORBIDDEN: readonly FrameCase[] = [
  ...cases(
    CUT,
    Object.fromEntries([
      ...[1, 2, 3, 4, 5, 6, 7].map((rsv) => [`reserved bits ${rsv}`, [text(BEAT, { rsv })]]),
      ...[3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map((opcode) => [
        `opcode ${opcode}`,
        [frameBytes({ opcode, payload: BEAT })],
      ]),
    ]),
  ),
  // uWebSockets does not look at the mark for a mask: the first four bytes of the payload become the mask,
  // and four more are waited for. What is read so is never what was written.
  ...cases(CUT, {
    "no mask, read to be no UTF-8": [text(BEAT, { masked: false }), bytes(255, 255, 255, 255)],
  }),
  ...cases(["error malformed"], {
    "no mask, read to be some text": [text(BEAT, { masked: false }), Buffer.from("    ")],
  }),
];

/** Which codes uWebSockets takes for one that may be sent; RFC 6455, 7.4, and the registry know more. */
const ECHOED = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 4000, 4401, 4999];
/** What must not be sent, and (from 1012 and 3000 on) what may and is not known to uWebSockets. */
const NOT_ECHOED = [0, 999, 1004, 1005, 1006, 1012, 1013, 1014, 1015, 1016, 2999, 3000, 3999, 5000];

/** RFC 6455, 5.5.1 and 7. The client begins: its close is answered, and the server ends first. */
const CLOSES: readonly FrameCase[] = [
  ...ECHOED.flatMap((code) =>
    cases([`close ${code}`, "end"], { [`close ${code}`]: [close(closePayload(code))] }),
  ),
  ...cases(
    ["close", "end"],
    Object.fromEntries([
      ["close without a code", [close(bytes())]],
      ["close with half a code", [close(bytes(3))]],
      ["close with a reason that is no UTF-8", [close(closePayload(1000, bytes(0xff)))]],
      ...NOT_ECHOED.map((code) => [`close ${code}`, [close(closePayload(code))]]),
    ]),
  ),
  ...cases(["close 1000 bye", "end"], {
    "close with a reason": [close(closePayload(1000, "bye"))],
  }),
  ...cases([`close 1000 ${"b".repeat(123)}`, "end"], {
    "close with the longest reason": [close(closePayload(1000, "b".repeat(123)))],
  }),
  ...cases(CUT, {
    "close with a reason that is too long": [close(closePayload(1000, "b".repeat(124)))],
    "close in fragments": [close(closePayload(1000), started)],
  }),
  ...cases(["close 1000", "end"], {
    "what comes behind a close is not read": [
      Buffer.concat([close(closePayload(1000)), text(BEAT), ping("late")]),
    ],
  }),
];

export const FRAME_CASES: Readonly<Record<string, readonly FrameCase[]>> = {
  lengths: LENGTHS,
  "too large": TOO_LARGE,
  fragments: FRAGMENTS,
  pings: PINGS,
  "no UTF-8": NOT_UTF8,
  forbidden: FORBIDDEN,
  closes: CLOSES,
};
