/**
 * A double of the protocol's server side, over real WebSockets: for faults that no real edge can be made
 * to produce. It keeps a log as the real one does, checks by the protocol's own schemas what it is sent,
 * and holds to the order of frames; what goes wrong goes wrong by {@link Faults} alone.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type Command,
  type CommandOf,
  type DurableEvent,
  type NewEvent,
  cursorTag,
  formatCursor,
  isTerminal,
  parseCursor,
} from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import { WebSocket, WebSocketServer } from "ws";

export interface Stored {
  readonly streamSeq: number;
  readonly event: DurableEvent & { cursor: string };
}

/** What all nodes read: one log of all sessions, in the order in which it was written. */
export class Log {
  readonly stored: Stored[] = [];
  readonly #seqs = new Map<string, number>();
  readonly #readers = new Set<(stored: Stored) => void>();
  /** Of commands: id → body, as the server keeps them to know a repetition. */
  readonly commands = new Map<string, string>();

  append(session: string, run: string, event: NewEvent): DurableEvent & { cursor: string } {
    const seq = (this.#seqs.get(run) ?? 0) + 1;
    this.#seqs.set(run, seq);
    const streamSeq = this.stored.length + 1;
    const full = {
      ...event,
      session_id: session,
      run_id: run,
      seq,
      event_id: `${run}.${seq}`,
      ts: 1_764_532_800_000 + streamSeq,
      cursor: formatCursor({ seq, streamSeq, tag: cursorTag(run, "e1") }),
    };
    const stored = { streamSeq, event: full };
    this.stored.push(stored);
    for (const read of this.#readers) read(stored);
    return full;
  }

  /** `count` small events of a run, a start before and an end after them on demand. */
  fill(
    session: string,
    run: string,
    count: number,
    parts: { start?: boolean; end?: boolean } = {},
  ): void {
    if (parts.start ?? true) this.append(session, run, queued());
    for (let n = 0; n < count; n++)
      this.append(session, run, { type: "custom", payload: { name: "n", value: n } });
    if (parts.end ?? false)
      this.append(session, run, { type: "run.completed", payload: { output: count } });
  }

  of(session: string, run?: string): DurableEvent[] {
    return this.stored.map(({ event }) => event).filter((event) => covers({ session, run }, event));
  }

  watch(read: (stored: Stored) => void): () => void {
    this.#readers.add(read);
    return () => void this.#readers.delete(read);
  }
}

export function queued(): NewEvent {
  return {
    type: "run.queued",
    payload: { agent: "test", input: null, by: "ann", deadline: 1_764_632_800_000 },
  };
}

type Delivery = DurableEvent & { cursor: string };

/** Where a test lays its hand on the wire. Each is asked at every occasion. */
export interface Faults {
  /** What is sent in place of one event: itself by default, twice, nothing, another. */
  deliver?: (event: Delivery, connection: EdgeConnection) => Delivery[];
  /** Handles a command itself, if it returns true. */
  command?: (command: Command, connection: EdgeConnection) => boolean;
  /** Changes the `subscribed` frame, e.g. to say that the cursor has expired. */
  subscribed?: (command: CommandOf<"subscribe">) => SubscribedFault | undefined;
  /** HTTP status with which the handshake is refused. */
  refuse?: (request: IncomingMessage) => number | undefined;
  /** JSON for a GET; without it, 404. */
  get?: (request: IncomingMessage) => object | undefined;
  /** Close code in place of a welcome. */
  closeAtOnce?: () => number | undefined;
  /** An ended run's subscription is not ended. */
  endless?: boolean;
  /** Accepts, and says nothing. */
  silent?: () => boolean;
}

export interface SubscribedFault {
  recovered: boolean;
  mode: "replay" | "snapshot" | "live";
  reason?: "cursor_expired" | "cursor_invalid";
  /** Replayed from behind this stream sequence. */
  after: number;
  /** Sent between `subscribed` and the events. */
  frames?: (subscriptionId: string) => object[];
}

interface Filter {
  session: string;
  run: string | undefined;
}

export interface DoubleOptions {
  heartbeatMs?: number;
  maxFrameBytes?: number;
}

/** One node. */
export class EdgeDouble {
  readonly log: Log;
  readonly faults: Faults = {};
  readonly options: DoubleOptions;
  readonly connections = new Set<EdgeConnection>();
  /** All commands that came, but for heartbeats. */
  readonly commands: Command[] = [];
  readonly requests: IncomingMessage[] = [];
  /** What the client sent that no server would take. */
  readonly complaints: string[] = [];
  #http: Server | undefined;
  #server: WebSocketServer | undefined;
  #port = 0;

  constructor(log: Log, options: DoubleOptions = {}) {
    this.log = log;
    this.options = options;
  }

  get url(): string {
    return `ws://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<this> {
    const http = createServer((request, response) => {
      this.requests.push(request);
      const body = this.faults.get?.(request);
      response.writeHead(body === undefined ? 404 : 200, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body ?? { code: "not_found" }));
    });
    const server = new WebSocketServer({
      server: http,
      handleProtocols: (offered) => (offered.has("throughline.v1") ? "throughline.v1" : false),
      verifyClient: ({ req }, answer) => {
        this.requests.push(req);
        const status = this.faults.refuse?.(req);
        if (status === undefined) answer(true);
        else answer(false, status);
      },
    });
    server.on("connection", (socket) => {
      const connection = new EdgeConnection(this, socket);
      this.connections.add(connection);
      socket.on("close", () => this.connections.delete(connection));
    });
    http.listen(this.#port, "127.0.0.1");
    await once(http, "listening");
    this.#http = http;
    this.#server = server;
    this.#port = (http.address() as AddressInfo).port;
    return this;
  }

  /** Cuts every connection without a word, as `kill -9` does, and is gone until `listen`. */
  async kill(): Promise<void> {
    this.cut();
    const server = this.#server;
    this.#server = undefined;
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
    const http = this.#http;
    http?.closeAllConnections();
    if (http?.listening === true) await new Promise((resolve) => http.close(resolve));
  }

  cut(): void {
    for (const connection of this.connections) connection.cut();
  }

  sent<T extends Command["type"]>(type: T): CommandOf<T>[] {
    return this.commands.filter((command): command is CommandOf<T> => command.type === type);
  }
}

interface ServerSubscription {
  readonly filter: Filter;
  stop(): void;
}

let ids = 0;

export class EdgeConnection {
  readonly #edge: EdgeDouble;
  readonly #socket: WebSocket;
  readonly #subscriptions = new Map<string, ServerSubscription>();

  constructor(edge: EdgeDouble, socket: WebSocket) {
    this.#edge = edge;
    this.#socket = socket;
    socket.on("error", () => undefined);
    socket.on("close", () => {
      for (const subscription of this.#subscriptions.values()) subscription.stop();
    });
    const code = edge.faults.closeAtOnce?.();
    if (code !== undefined) socket.close(code);
    else if (edge.faults.silent?.() !== true) this.#welcome();
  }

  #welcome(): void {
    const edge = this.#edge;
    this.#socket.on("message", (data: Buffer) => this.#take(data.toString()));
    this.send({
      type: "welcome",
      protocol: 1,
      connection_id: `con_${++ids}`,
      node: "double",
      heartbeat_interval_ms: edge.options.heartbeatMs ?? 20_000,
      max_frame_bytes: edge.options.maxFrameBytes ?? 512 * 1024,
      server_time: 0,
    });
  }

  send(frame: object): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  cut(): void {
    this.#socket.terminate();
  }

  close(code: number, reason?: string): void {
    this.#socket.close(code, reason);
  }

  /** Ends a subscription from the server's side. */
  unsubscribe(reason: string): void {
    for (const [id, subscription] of this.#subscriptions) {
      subscription.stop();
      this.#subscriptions.delete(id);
      this.send({ type: "unsubscribed", subscription_id: id, reason });
    }
  }

  #take(text: string): void {
    const parsed = parseCommand(JSON.parse(text));
    if (!parsed.ok) {
      this.#edge.complaints.push(`${parsed.code} ${parsed.message}: ${text}`);
      return this.send({ type: "error", code: parsed.code, message: parsed.message });
    }
    const { command } = parsed;
    if (command.type !== "heartbeat") this.#edge.commands.push(command);
    if (this.#edge.faults.command?.(command, this) === true) return;
    this.answer(command);
  }

  /** What a well-meaning server does with a command. */
  answer(command: Command): void {
    const { id } = command;
    switch (command.type) {
      case "heartbeat":
        return this.send({ type: "heartbeat.ack", id, ts: command.payload.ts });
      case "subscribe":
        return this.#subscribe(command);
      case "unsubscribe": {
        const { subscription_id } = command.payload;
        const found = this.#subscriptions.get(subscription_id);
        if (found === undefined)
          return this.send({
            type: "error",
            id,
            code: "not_found",
            message: "no such subscription",
          });
        found.stop();
        this.#subscriptions.delete(subscription_id);
        return this.send({ type: "unsubscribed", id, subscription_id, reason: "asked" });
      }
      case "session.create":
        return this.send({ type: "session.created", id, session_id: `ses_${id}` });
      case "run.start": {
        const run_id = `run_${id}`;
        const duplicate = this.#store(command);
        if (duplicate === undefined) return;
        if (!duplicate) this.#edge.log.append(command.session_id, run_id, queued());
        return this.send({ type: "command.accepted", id, run_id, duplicate });
      }
      default: {
        const duplicate = this.#store(command);
        if (duplicate !== undefined) this.send({ type: "command.accepted", id, duplicate });
      }
    }
  }

  /** Whether it was there; undefined, with an answer, where another one was. */
  #store(command: Command): boolean | undefined {
    const body = JSON.stringify(command);
    const before = this.#edge.log.commands.get(command.id);
    this.#edge.log.commands.set(command.id, before ?? body);
    if (before === undefined || before === body) return before !== undefined;
    this.send({
      type: "command.rejected",
      id: command.id,
      code: "idempotency_conflict",
      message: "another command has this id",
    });
    return undefined;
  }

  #subscribe(command: CommandOf<"subscribe">): void {
    const filter = { session: command.session_id, run: command.run_id };
    for (const other of this.#subscriptions.values())
      if (overlap(other.filter, filter))
        return this.send({
          type: "error",
          id: command.id,
          code: "already_subscribed",
          message: "overlaps",
        });
    const { log, faults } = this.#edge;
    const subscription_id = `sub_${++ids}`;
    const cursor = parseCursor(command.payload.cursor);
    const fault = faults.subscribed?.(command);
    const latest = command.payload.from === "latest" ? log.stored.length : 0;
    const after = fault?.after ?? cursor?.streamSeq ?? latest;
    const { recovered = true, mode = "replay", reason } = fault ?? {};
    this.send({
      type: "subscribed",
      id: command.id,
      subscription_id,
      session_id: filter.session,
      ...(filter.run === undefined ? {} : { run_id: filter.run }),
      recovered,
      mode,
      ...(reason === undefined ? {} : { reason }),
      cursor:
        fault === undefined && command.payload.cursor !== undefined
          ? command.payload.cursor
          : formatCursor({ seq: 0, streamSeq: after, tag: "0" }),
    });
    for (const frame of fault?.frames?.(subscription_id) ?? []) this.send(frame);
    const deliver = (stored: Stored): void => {
      if (stored.streamSeq <= after || !covers(filter, stored.event)) return;
      const events = faults.deliver?.(stored.event, this) ?? [stored.event];
      for (const event of events) this.send(event);
      if (filter.run === undefined || !isTerminal(stored.event.type) || faults.endless) return;
      this.#subscriptions.get(subscription_id)?.stop();
      this.#subscriptions.delete(subscription_id);
      this.send({ type: "unsubscribed", subscription_id, reason: "run_ended" });
    };
    const stop = log.watch(deliver);
    this.#subscriptions.set(subscription_id, { filter, stop });
    for (const stored of [...log.stored]) deliver(stored);
    this.send({
      type: "caught_up",
      subscription_id,
      cursor: log.stored.at(-1)?.event.cursor ?? "0-0-0",
    });
  }
}

function covers(filter: Filter, event: DurableEvent): boolean {
  return (
    event.session_id === filter.session && (filter.run === undefined || event.run_id === filter.run)
  );
}

function overlap(a: Filter, b: Filter): boolean {
  return a.session === b.session && (a.run === undefined || b.run === undefined || a.run === b.run);
}
