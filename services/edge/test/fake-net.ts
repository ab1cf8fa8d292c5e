import type { ConnectionSocket, Publisher, SendResult } from "../src/session/port.ts";

/** A frame as a client parses it. */
export interface Received {
  readonly type: string;
  readonly run_id?: string;
  readonly seq?: number;
  readonly cursor?: string;
  readonly subscription_id?: string;
  readonly id?: string;
  readonly code?: string;
  readonly message?: string;
  readonly retry_after_ms?: number;
  readonly state?: { readonly seq?: number };
  readonly payload?: { readonly text?: string };
}

/**
 * Sockets and topics as uWebSockets has them: a publish reaches who is subscribed then, is written at
 * the end of the turn, and skips a socket over its limit without a word; a send flushes first; and (older
 * build) what was published in the turn in which a socket leaves its last topic is discarded.
 */
export class FakeNet implements Publisher {
  readonly topics: Map<string, Set<FakeSocket>> = new Map();
  readonly #sockets: Set<FakeSocket> = new Set();
  readonly maxBackpressure: number;
  skipped = 0;
  #afterTurn: (() => void)[] = [];

  constructor(maxBackpressure: number) {
    this.maxBackpressure = maxBackpressure;
  }

  publish(topic: string, frame: Uint8Array): void {
    for (const socket of this.topics.get(topic) ?? []) socket.published(frame);
  }

  open(kernelBytes = Infinity): FakeSocket {
    const socket = new FakeSocket(this, kernelBytes);
    this.#sockets.add(socket);
    socket.subscribe("node");
    return socket;
  }

  readonly afterTurn = (run: () => void): void => {
    this.#afterTurn.push(run);
  };

  get isIdle(): boolean {
    return this.#afterTurn.length === 0;
  }

  /** Ends a turn of the loop: flushes, then runs what waits for that, as setImmediate does. */
  turn(): void {
    for (const socket of this.#sockets) socket.flush();
    const due = this.#afterTurn;
    this.#afterTurn = [];
    for (const run of due) run();
  }
}

export class FakeSocket implements ConnectionSocket {
  readonly #net: FakeNet;
  readonly frames: Received[] = [];
  readonly #topics: Set<string> = new Set();
  #pending: Uint8Array[] = [];
  /** Not taken by the kernel yet. */
  readonly #outbox: (string | Uint8Array)[] = [];
  #outboxBytes = 0;
  #room: number;
  pings = 0;
  closed: { code: number; reason: string } | undefined;
  onDrain: () => void = () => undefined;

  constructor(net: FakeNet, kernelBytes: number) {
    this.#net = net;
    this.#room = kernelBytes;
  }

  send(frame: string | Uint8Array): SendResult {
    if (this.closed) return "closed";
    this.flush();
    return this.#write(frame);
  }

  buffered(): number {
    return this.closed ? 0 : this.#outboxBytes;
  }

  cork(write: () => void): void {
    write();
  }

  ping(): void {
    this.pings += 1;
  }

  subscribe(topic: string): void {
    if (this.closed) return;
    this.#topics.add(topic);
    const subscribers = this.#net.topics.get(topic) ?? new Set();
    this.#net.topics.set(topic, subscribers.add(this));
  }

  unsubscribe(topic: string): void {
    this.#topics.delete(topic);
    this.#net.topics.get(topic)?.delete(this);
    if (this.#topics.size === 0) this.#pending = [];
  }

  end(code: number, reason: string): void {
    this.flush();
    this.closed ??= { code, reason };
    this.#leave();
  }

  close(): void {
    this.closed ??= { code: 1006, reason: "" };
    this.#leave();
  }

  published(frame: Uint8Array): void {
    this.#pending.push(frame);
  }

  flush(): void {
    const pending = this.#pending;
    this.#pending = [];
    for (const frame of pending) if (this.#write(frame) === "dropped") this.#net.skipped += 1;
  }

  /** The peer reads: the kernel has room for `bytes` more. */
  drain(bytes: number): void {
    const before = this.#outboxBytes;
    this.#room += bytes;
    while (this.#outbox.length > 0 && this.#room > 0) {
      const frame = this.#outbox.shift();
      if (frame === undefined) break;
      this.#outboxBytes -= frame.length;
      this.#deliver(frame);
    }
    if (this.#outboxBytes < before && !this.closed) this.onDrain();
  }

  #write(frame: string | Uint8Array): SendResult {
    if (this.#outboxBytes > this.#net.maxBackpressure) return "dropped";
    if (this.#outboxBytes === 0 && this.#room > 0) {
      this.#deliver(frame);
      return "sent";
    }
    // A copy, as uWebSockets makes one: what the caller does with its bytes later must not show.
    this.#outbox.push(typeof frame === "string" ? frame : Buffer.from(frame));
    this.#outboxBytes += frame.length;
    return "buffered";
  }

  #deliver(frame: string | Uint8Array): void {
    this.#room -= frame.length;
    this.frames.push(
      JSON.parse(typeof frame === "string" ? frame : Buffer.from(frame).toString("utf8")),
    );
  }

  #leave(): void {
    for (const topic of this.#topics) this.#net.topics.get(topic)?.delete(this);
    this.#topics.clear();
    this.#pending = [];
  }
}
