/** The thin shell around lifecycle.ts: it owns the socket, the timer and the call for a token. */
import { type ControlFrame, MAX_FRAME_BYTES } from "@throughline/protocol";
import type { Clock } from "../clock.ts";
import { type Incoming, decodeFrame } from "../frame.ts";
import {
  type ClosedFor,
  type ConnectionEffect,
  type ConnectionEvent,
  type ConnectionState,
  type LifecycleOptions,
  transition,
} from "./lifecycle.ts";
import { type Socket, type WebSocketConstructor, openSocket } from "./socket.ts";

export interface ConnectionOptions {
  /** At least one. */
  urls: readonly string[];
  token: string | (() => Promise<string>);
  tokenIn: "header" | "subprotocol";
  webSocket: WebSocketConstructor;
  reconnect: { baseMs: number; capMs: number };
  clock: Clock;
  random: () => number;
}

export interface ConnectionHooks {
  up(): void;
  down(closeCode: number | undefined): void;
  /** `bytes`: about how much it holds in memory. */
  frame(incoming: Incoming, bytes: number): void;
  /** When the oldest question was asked that is still unanswered. */
  oldestQuestion(): number | undefined;
  ended(cause: ClosedFor): void;
  /** The state has changed. */
  changed(): void;
}

/**
 * Milliseconds. A server that answers heartbeats and not what it was asked has lost the question; it is
 * asked again, with the same ids, on a new connection.
 */
const ANSWER_TIMEOUT_MS = 30_000;

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #lifecycle: LifecycleOptions;
  readonly #hooks: ConnectionHooks;
  #state: ConnectionState = { name: "idle" };
  #socket: Socket | undefined;
  #token = "";
  #stopTimer: () => void = () => undefined;
  #heardAt = 0;
  #maxFrameBytes = MAX_FRAME_BYTES;
  #closeCode: number | undefined;
  /** Effects may cause events; each is finished before the next is begun. */
  readonly #events: ConnectionEvent[] = [];
  #busy = false;

  constructor(options: ConnectionOptions, hooks: ConnectionHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#lifecycle = {
      ...options.reconnect,
      urls: options.urls.length,
      fixedToken: typeof options.token === "string",
    };
  }

  get state(): ConnectionState {
    return this.#state;
  }

  get isOpen(): boolean {
    return this.#state.name === "open";
  }

  /** What the server takes in one frame, in bytes. */
  get maxFrameBytes(): number {
    return this.#maxFrameBytes;
  }

  start(): void {
    this.#dispatch({ type: "start" });
  }

  stop(): void {
    this.#dispatch({ type: "stop" });
  }

  /** Only while {@link isOpen}. That it was sent says nothing; only an answer does. */
  send(text: string): void {
    this.#socket?.send(text);
  }

  #dispatch(event: ConnectionEvent): void {
    this.#events.push(event);
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let next = this.#events.shift(); next; next = this.#events.shift()) this.#step(next);
    } finally {
      this.#busy = false;
    }
  }

  #step(event: ConnectionEvent): void {
    const before = this.#state;
    const { state, effects } = transition(before, event, {
      now: this.#options.clock.now(),
      random: this.#options.random(),
      options: this.#lifecycle,
    });
    if (state !== before) {
      this.#state = state;
      this.#setTimer();
    }
    for (const effect of effects) this.#perform(effect);
    if (state !== before) this.#hooks.changed();
  }

  #setTimer(): void {
    this.#stopTimer();
    this.#stopTimer = () => undefined;
    if (!("due" in this.#state)) return;
    const { clock } = this.#options;
    const ms = Math.max(0, this.#state.due - clock.now());
    this.#stopTimer = clock.after(ms, () => {
      const asked = this.#hooks.oldestQuestion();
      if (this.isOpen && asked !== undefined && clock.now() - asked >= ANSWER_TIMEOUT_MS)
        this.#dispatch({ type: "abandon" });
      else this.#dispatch({ type: "due", heardAt: this.#heardAt });
    });
  }

  #perform(effect: ConnectionEffect): void {
    switch (effect) {
      case "fetch_token":
        return this.#fetchToken();
      case "open_socket":
        return this.#openSocket();
      case "close_socket":
        this.#socket?.drop();
        this.#socket = undefined;
        return;
      case "send_heartbeat":
        return this.send(
          JSON.stringify({ type: "heartbeat", id: "hb", payload: { ts: Date.now() } }),
        );
      case "up":
        return this.#hooks.up();
      case "down":
        this.#hooks.down(this.#closeCode);
        return;
      case "ended":
        if (this.#state.name === "closed") this.#hooks.ended(this.#state.cause);
        return;
    }
  }

  #fetchToken(): void {
    const { token } = this.#options;
    if (typeof token === "string") {
      this.#token = token;
      return this.#dispatch({ type: "token" });
    }
    // A call that comes back after its time must not speak for the one made since.
    const asking = this.#state;
    const settle = (event: ConnectionEvent): void => {
      if (this.#state === asking) this.#dispatch(event);
    };
    token().then(
      (text) => {
        if (this.#state === asking) this.#token = text;
        settle({ type: "token" });
      },
      (error: unknown) => settle({ type: "token_failed", error }),
    );
  }

  #openSocket(): void {
    const { urls, webSocket, tokenIn } = this.#options;
    if (this.#state.name !== "connecting") return;
    const url = urls[this.#state.url] ?? "";
    this.#closeCode = undefined;
    try {
      this.#socket = openSocket(
        { webSocket, url, token: this.#token, tokenIn },
        {
          message: (text) => this.#message(text),
          closed: (code, reason) => {
            this.#socket = undefined;
            this.#closeCode = code;
            this.#dispatch({ type: "lost", code, reason });
          },
        },
      );
    } catch (error) {
      this.#dispatch({
        type: "unusable",
        error: error instanceof Error ? error : new Error(String(error)),
      });
    }
  }

  #message(text: string): void {
    this.#heardAt = this.#options.clock.now();
    const incoming = decodeFrame(text);
    if (incoming === undefined) return;
    if (incoming.kind === "control" && this.#own(incoming.frame)) return;
    // UTF-16, and the parsed object is of the same order.
    if (this.isOpen) this.#hooks.frame(incoming, text.length * 2);
  }

  /** Frames about the connection itself. */
  #own(frame: ControlFrame): boolean {
    switch (frame.type) {
      case "welcome":
        this.#maxFrameBytes = frame.max_frame_bytes;
        this.#dispatch({ type: "welcome", beatMs: frame.heartbeat_interval_ms });
        return true;
      case "goaway":
        this.#dispatch({ type: "goaway", afterMs: frame.reconnect_after_ms });
        return true;
      case "heartbeat":
      case "heartbeat.ack":
        return true;
      default:
        return false;
    }
  }
}
