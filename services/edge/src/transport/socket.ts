import type { ConnectionSocket, SendResult } from "../session/port.ts";
import type { UwsSocket } from "./uws.ts";

/**
 * The one wrapper that knows whether the native socket is still there: every method of a closed
 * one throws, and a close may come in the middle of any call that writes.
 */
export class WsSocket<UserData> implements ConnectionSocket {
  #ws: UwsSocket<UserData> | undefined;

  constructor(ws: UwsSocket<UserData>) {
    this.#ws = ws;
  }

  /** To be called first thing in the close handler. */
  forget(): void {
    this.#ws = undefined;
  }

  send(frame: string | Uint8Array): SendResult {
    if (this.#ws === undefined) return "closed";
    const result = this.#ws.send(frame, false);
    return result === 1 ? "sent" : result === 0 ? "buffered" : "dropped";
  }

  buffered(): number {
    return this.#ws?.getBufferedAmount() ?? 0;
  }

  cork(write: () => void): void {
    if (this.#ws === undefined) write();
    else this.#ws.cork(write);
  }

  subscribe(topic: string): void {
    this.#ws?.subscribe(topic);
  }

  unsubscribe(topic: string): void {
    this.#ws?.unsubscribe(topic);
  }

  ping(): void {
    this.#ws?.ping();
  }

  end(code: number, reason: string): void {
    this.#ws?.end(code, closeReason(reason));
  }

  close(): void {
    this.#ws?.close();
  }
}

/** A control frame holds 125 bytes, 2 of them the code. uWebSockets would send a longer one, and clients call that a fault. */
const MAX_REASON_BYTES = 123;

/** The reason, cut where it would not fit. Never in the middle of a character. */
function closeReason(reason: string): string {
  if (Buffer.byteLength(reason) <= MAX_REASON_BYTES) return reason;
  const kept = Buffer.from(reason).subarray(0, MAX_REASON_BYTES - Buffer.byteLength("…"));
  // With `stream` an incomplete character at the end is waited for, that is, left out.
  return `${new TextDecoder().decode(kept, { stream: true })}…`;
}
