/**
 * A proxy tap that understands what a nats-server sends, so that a test can lose, hold back or reorder
 * single messages (a live copy, say) on a connection that else works.
 */
import type { MakeTap } from "./proxy.ts";

export interface NatsMessage {
  readonly subject: string;
  readonly reply: string | undefined;
  /** The raw header block; empty without headers. */
  readonly headers: string;
  readonly payload: Buffer;
  /** Which of the proxy's connections it goes to. */
  readonly connection: number;
}

/** `hold` keeps it back until `release`. */
export type Verdict = "pass" | "drop" | "hold";

export interface NatsFilter {
  /** For `proxy.tap`. */
  readonly tap: MakeTap;
  readonly dropped: number;
  readonly held: number;
  /** Sends what is held, in the order that `arrange` gives. */
  readonly release: (arrange?: (held: readonly NatsMessage[]) => readonly NatsMessage[]) => void;
}

const CRLF = Buffer.from("\r\n");

/** Asks `judge` about every message from the server to the client. */
export function natsFilter(judge: (message: NatsMessage) => Verdict): NatsFilter {
  const held = new Map<NatsMessage, () => void>();
  let dropped = 0;

  const tap: MakeTap = ({ connection, inject }) => {
    let rest: Buffer = Buffer.alloc(0);
    return {
      down: (chunk) => {
        rest = Buffer.concat([rest, chunk]);
        const out: Buffer[] = [];
        for (let unit = readUnit(rest, connection); unit; unit = readUnit(rest, connection)) {
          const { bytes, message } = unit;
          rest = rest.subarray(bytes.length);
          const verdict = message ? judge(message) : "pass";
          if (verdict === "pass") out.push(bytes);
          else if (verdict === "drop") dropped++;
          else if (message) held.set(message, () => inject("down", bytes));
        }
        return Buffer.concat(out);
      },
    };
  };

  return {
    tap,
    get dropped() {
      return dropped;
    },
    get held() {
      return held.size;
    },
    release: (arrange = (list) => list) => {
      const order = arrange([...held.keys()]);
      for (const message of order) held.get(message)?.();
      for (const message of order) held.delete(message);
    },
  };
}

/** The protocol's first whole unit in `buffer`: a control line, or a message line with its payload. */
function readUnit(
  buffer: Buffer,
  connection: number,
): { bytes: Buffer; message?: NatsMessage } | undefined {
  const lineEnd = buffer.indexOf(CRLF);
  if (lineEnd < 0) return undefined;
  const start = lineEnd + CRLF.length;
  const [verb, ...args] = buffer.subarray(0, lineEnd).toString().split(" ");
  if (verb !== "MSG" && verb !== "HMSG") return { bytes: Buffer.from(buffer.subarray(0, start)) };

  // MSG <subject> <sid> [reply] <size>, HMSG <subject> <sid> [reply] <header size> <total size>
  const sizes = args.splice(verb === "MSG" ? -1 : -2).map(Number);
  const [subject = "", , reply] = args;
  const total = sizes.at(-1) ?? 0;
  const headerBytes = verb === "MSG" ? 0 : (sizes[0] ?? 0);
  if (buffer.length < start + total + CRLF.length) return undefined;
  // Copied: a held message must not keep, or be changed with, the chunk it came in.
  const bytes = Buffer.from(buffer.subarray(0, start + total + CRLF.length));
  const headers = bytes.subarray(start, start + headerBytes).toString();
  const payload = bytes.subarray(start + headerBytes, start + total);
  return { bytes, message: { subject, reply, headers, payload, connection } };
}
