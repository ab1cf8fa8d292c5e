import {
  bodyHash,
  type Broker,
  type BrokerOptions,
  openBroker,
  openRunWriter,
  type RunRef,
  type RunWriter,
} from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { eventually, type NatsServer, startNats, startNatsCluster } from "@throughline/testkit";
import { randomBytes } from "node:crypto";
import { createConnection } from "node:net";
import { WebSocket } from "ws";
import { type Edge, type EdgeOptions, startEdge } from "../src/edge.ts";
import { Reads } from "../src/fanout/reads.ts";
import { type RunAt, RunStates } from "../src/runs/run-states.ts";
import { loadUws } from "../src/transport/uws.ts";

export interface Frame {
  readonly type: string;
  readonly seq?: number;
  readonly run_id?: string;
  readonly session_id?: string;
  readonly cursor?: string;
  readonly id?: string;
  readonly code?: string;
  readonly message?: string;
  readonly subscription_id?: string;
  readonly recovered?: boolean;
  readonly mode?: string;
  readonly reason?: string;
  readonly duplicate?: boolean;
  readonly retry_after_ms?: number;
  readonly state?: unknown;
  readonly state_url?: string;
  readonly payload?: { readonly name?: string; readonly value?: unknown; readonly text?: string };
}

export interface ConnectOptions {
  readonly token?: string | null;
  readonly query?: string;
  readonly protocols?: string[];
  readonly headers?: Record<string, string>;
}

/** All edges of all stages: a ticket of one is good at the others. */
const STREAM_KEY = "a key of tests, with 32 bytes or more";

/** NATS, a broker for the worker's side, and edges in this process. */
export class Stage {
  readonly nats: NatsServer;
  readonly broker: Broker;
  readonly logged: object[] = [];
  readonly #edges: { edge: Edge; broker: Broker }[] = [];
  readonly #clients: Set<Client> = new Set();
  /** Edges are connected to one after the other. */
  readonly #servers: readonly NatsServer[];

  constructor(nats: NatsServer, broker: Broker, others: readonly NatsServer[] = []) {
    this.nats = nats;
    this.broker = broker;
    this.#servers = [...others, nats];
  }

  static async open(options: Partial<BrokerOptions> = {}): Promise<Stage> {
    const nats = await startNats();
    return new Stage(nats, await connect(nats, "worker", options));
  }

  /** Three servers with three replicas of everything; the worker's side is on the first. */
  static async openOnCluster(): Promise<Stage> {
    const [nats, ...others] = (await startNatsCluster(3)).nodes;
    if (nats === undefined) throw new Error("the cluster has no servers");
    const options = { replicas: 3, connectTimeoutMs: 60_000 };
    return new Stage(nats, await connect(nats, "worker", options), others);
  }

  async edge(options: Partial<EdgeOptions> = {}): Promise<Edge> {
    const server = this.#servers[this.#edges.length % this.#servers.length] ?? this.nats;
    const replicas = this.broker.replicas;
    const broker = await connect(server, "edge", { replicas, connectTimeoutMs: 60_000 });
    const log = (fields: object, message: string): void => {
      this.logged.push({ ...fields, message });
    };
    const edge = await startEdge(
      {
        nodeId: `edge-${this.#edges.length + 1}`,
        host: "127.0.0.1",
        port: 0,
        sharedPort: undefined,
        devTokens: true,
        trustedProxies: [],
        allowedOrigins: [],
        streamKeys: [STREAM_KEY],
        maxConnections: 10_000,
        framesPerSecond: 100,
        fanoutBytes: 64 * 1024 * 1024,
        deadlineMs: 60_000,
        drainDelayMs: 0,
        drainMs: 100,
        ...options,
      },
      broker,
      loadUws(),
      { info: log, warn: log, error: log },
    );
    this.#edges.push({ edge, broker });
    return edge;
  }

  client(edge: Pick<Edge, "port">, options: ConnectOptions = {}): Client {
    const client = new Client(edge, options);
    this.#clients.add(client);
    return client;
  }

  /** A connected client that has had its welcome. */
  async connected(edge: Pick<Edge, "port">, options: ConnectOptions = {}): Promise<Client> {
    const client = this.client(edge, options);
    await client.frame("welcome");
    return client;
  }

  async session(edge: Pick<Edge, "port">, token = "dev.acme.ann"): Promise<string> {
    const client = await this.connected(edge, { token });
    const { session_id } = await client.ask({ type: "session.create", payload: {} });
    client.close();
    if (session_id === undefined) throw new Error("the session was not created");
    return session_id;
  }

  /** A started run of the session, with its writer. */
  async run(session: string): Promise<{ ref: RunRef; writer: RunWriter }> {
    const ref = { tenant: "acme", session, run: `run_${randomBytes(6).toString("hex")}` };
    const deadline = Date.now() + 60_000;
    const started = await this.broker.events.start({
      ref,
      agent: "echo",
      user: "ann",
      commandId: ref.run,
      hash: bodyHash({}),
      deadline,
      payload: { agent: "echo", input: {}, by: "ann", deadline },
    });
    if (started.outcome !== "stored") throw new Error(`the start was a ${started.outcome}`);
    return { ref, writer: await this.writer(ref, started.epoch, started.streamSeq) };
  }

  /** What a worker does every 200 events: the run's state as of now becomes its snapshot. */
  async snapshot(ref: RunRef, writer: RunWriter): Promise<RunAt> {
    const { events, snapshots } = this.broker;
    const at = await new RunStates(events, snapshots, new Reads(8)).current(ref);
    if (at === undefined) throw new Error("nothing is stored of the run");
    const { state, streamSeq, epoch } = at;
    const mark = { seq: state.seq, streamSeq, epoch, attempt: 1, cmd: 0 };
    await snapshots.write(ref, { state, ...mark, writer: writer.writer });
    return at;
  }

  writer(ref: RunRef, epoch: string, streamSeq: number): Promise<RunWriter> | RunWriter {
    return openRunWriter(this.broker, {
      ref,
      epoch,
      attempt: 1,
      worker: "w1",
      position: { seq: 1, streamSeq, eSeq: 0, cmd: 0 },
    });
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.terminate();
    for (const { edge, broker } of this.#edges) {
      edge.close();
      await broker.close();
    }
    await this.broker.close();
    await Promise.all(this.#servers.map((server) => server.stop()));
  }
}

/** Publishes past the run writer, in NATS's own words: what no worker of ours would store. */
export function publishRaw(
  nats: NatsServer,
  subject: string,
  headers: Record<string, string | number>,
  body: string,
): Promise<void> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `NATS/1.0\r\n${lines.join("")}\r\n`;
  const total = head.length + Buffer.byteLength(body);
  return new Promise((resolve, reject) => {
    const socket = createConnection(nats.port, "127.0.0.1");
    socket.write('CONNECT {"verbose":false,"headers":true}\r\n');
    socket.write(`HPUB ${subject} ${head.length} ${total}\r\n${head}${body}\r\nPING\r\n`);
    socket.on("data", (data) => {
      if (!data.includes("PONG")) return;
      socket.destroy();
      resolve();
    });
    socket.on("error", reject);
  });
}

function connect(
  nats: NatsServer,
  name: string,
  options: Partial<BrokerOptions> = {},
): Promise<Broker> {
  return openBroker({ servers: [nats.url], name, shards: 2, ...options });
}

let ids = 0;
export const freshId = (): string => `c${(ids += 1)}_${randomBytes(4).toString("hex")}`;

export const note = (value: string | number): NewEvent => ({
  type: "custom",
  payload: { name: "note", value },
});

export const completed = { type: "run.completed", payload: { output: "done" } } as const;

/** A WebSocket client that keeps all frames. */
export class Client {
  readonly frames: Frame[] = [];
  readonly ws: WebSocket;
  closed: { code: number; reason: string } | undefined;
  /** Of a refused handshake. */
  refusal: { status: number; headers: Record<string, unknown>; body: string } | undefined;

  constructor(edge: Pick<Edge, "port">, options: ConnectOptions) {
    const {
      token = "dev.acme.ann",
      query = "",
      protocols = ["throughline.v1"],
      headers = {},
    } = options;
    const url = `ws://127.0.0.1:${edge.port}/v1/connect${query === "" ? "" : `?${query}`}`;
    const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
    this.ws = new WebSocket(url, protocols, { headers: { ...authorization, ...headers } });
    this.ws.on("message", (data: Buffer) =>
      this.frames.push(JSON.parse(data.toString("utf8")) as Frame),
    );
    this.ws.on("close", (code, reason) => {
      this.closed = { code, reason: reason.toString("utf8") };
    });
    this.ws.on("error", () => undefined);
    this.ws.on("unexpected-response", (_request, response) => {
      let body = "";
      response.on("data", (chunk: Buffer) => (body += chunk.toString("utf8")));
      response.on("end", () => {
        this.refusal = { status: response.statusCode ?? 0, headers: response.headers, body };
        this.ws.terminate();
      });
    });
  }

  send(command: object): void {
    this.ws.send(JSON.stringify(command));
  }

  /** Sends a command and waits for the frame with its id. */
  async ask(command: { type: string; id?: string; [field: string]: unknown }): Promise<Frame> {
    const id = command.id ?? freshId();
    const before = this.frames.length;
    this.send({ ...command, id });
    return this.until(
      () => this.frames.slice(before).find((f) => f.id === id && f.seq === undefined),
      `an answer to ${command.type}`,
    );
  }

  subscribe(
    ref: { session: string; run?: string },
    payload: { cursor?: string; from?: string; deltas?: boolean; window?: number } = {},
  ): Promise<Frame> {
    const { session, run } = ref;
    return this.ask({
      type: "subscribe",
      session_id: session,
      ...(run ? { run_id: run } : {}),
      payload,
    });
  }

  frame(type: string, count = 1): Promise<Frame> {
    return this.until(() => this.frames.filter((f) => f.type === type)[count - 1], type);
  }

  until<T>(look: () => T | undefined, what: string): Promise<NonNullable<T>> {
    return eventually(() => look() ?? false, {
      what: () =>
        `${what}; closed: ${JSON.stringify(this.closed)}; last frames: ${JSON.stringify(this.frames.slice(-3))}`,
    }) as Promise<NonNullable<T>>;
  }

  untilClosed(): Promise<{ code: number; reason: string }> {
    return this.until(() => this.closed, "a close");
  }

  get events(): Frame[] {
    return this.frames.filter((f) => f.seq !== undefined);
  }

  seqs(run?: string): number[] {
    return this.events.filter((f) => run === undefined || f.run_id === run).map((f) => f.seq ?? 0);
  }

  get cursor(): string {
    const held = this.frames.findLast((f) => f.cursor !== undefined);
    if (held?.cursor === undefined) throw new Error("no cursor yet");
    return held.cursor;
  }

  close(): void {
    this.ws.close();
  }

  terminate(): void {
    this.ws.terminate();
  }
}

export const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);
