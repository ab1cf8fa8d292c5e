/** Role: a client that steers runs over one WebSocket, and times what comes back. */
import { type NatsConnection, connect as connectNats } from "@nats-io/transport-node";
import { SUBPROTOCOL } from "@throughline/protocol";
import { sharedMicros } from "../process/proc.ts";
import { serve } from "@throughline/testkit";
import { type ClientSocket, openSocket } from "../websocket/socket.ts";
import type { BareSubjects } from "./names.ts";
import type { ServerAddress } from "./viewers.ts";

/** Microseconds from the call to its answer; one sample a round for each. */
export interface RoundTrips {
  /** A bare NATS request, answered by the worker's process. */
  readonly request: number[];
  /** A bare message, stored by JetStream and acknowledged. */
  readonly stored: number[];
  readonly accepted: number[];
  readonly effect: number[];
}

/** When a worker's successor was seen, as of `sharedMicros`. */
export interface Succession {
  /** `run.resumed`. */
  readonly resumed: number;
  /** The first event of the agent after it. */
  readonly wentOn: number;
}

export type CommanderMethods = {
  /** Connects, and follows a session of its own. */
  readonly open: (q: { natsUrl: string; server: ServerAddress }) => Promise<void>;
  /** Starts runs; resolves with their workers' ids when they are running. */
  readonly start: (q: { agent: string; count: number }) => Promise<string[]>;
  /** One by one: a bare request, a stored message, a command to each run in turn. */
  readonly roundTrips: (q: { ms: number; bare: BareSubjects }) => Promise<RoundTrips>;
  /** Waits until the newest run has gone on under another worker. */
  readonly succession: (q: { timeoutMs: number }) => Promise<Succession>;
  /** Cancels all runs that `start` has given. */
  readonly cancel: (q: object) => Promise<void>;
};

interface Frame {
  readonly type: string;
  readonly id?: string;
  readonly seq?: number;
  readonly run_id?: string;
  readonly session_id?: string;
  readonly reply_to?: string;
  readonly payload?: Readonly<Record<string, unknown>>;
}

interface Waiter {
  readonly matches: (frame: Frame) => boolean;
  readonly resolve: (at: { frame: Frame; micros: number }) => void;
}

const HOST = "127.0.0.1";
/** As long as a command that steers a run. */
const PAYLOAD = "x".repeat(200);
const REQUEST_MS = 5_000;
const WAIT_MS = 20_000;

let nats: NatsConnection | undefined;
let socket: ClientSocket | undefined;
let session = "";
let runs: string[] = [];
let commands = 0;
const waiters = new Set<Waiter>();

const methods: CommanderMethods = {
  open: async ({ natsUrl, server }) => {
    nats ??= await connectNats({ servers: natsUrl, name: "bench commander" });
    await connect(server);
    const created = await ask({ type: "session.create", payload: {} });
    session = created.frame.session_id ?? "";
    await ask({ type: "subscribe", session_id: session, payload: {} });
  },

  start: async ({ agent, count }) => {
    runs = [];
    const workers: string[] = [];
    for (let n = 0; n < count; n += 1) {
      const begun = wait((f) => f.type === "run.started");
      const { frame } = await ask({
        type: "run.start",
        session_id: session,
        payload: { agent, input: null },
      });
      runs.push(frame.run_id ?? "");
      const { payload } = (await begun).frame;
      workers.push(String(payload?.["worker"]));
    }
    return workers;
  },

  roundTrips: async ({ ms, bare }) => {
    const trips: RoundTrips = { request: [], stored: [], accepted: [], effect: [] };
    const end = performance.now() + ms;
    for (let n = 0; performance.now() < end; n += 1) {
      trips.request.push(await timed(() => bareRequest(bare.request)));
      trips.stored.push(await timed(() => bareRequest(bare.stored)));
      const began = sharedMicros();
      const id = nextId();
      const effect = wait((f) => f.seq !== undefined && f.reply_to === id);
      const accepted = await ask({
        type: "run.continue",
        id,
        session_id: session,
        run_id: runs[n % runs.length],
        payload: { content: PAYLOAD },
      });
      trips.accepted.push(accepted.micros - began);
      trips.effect.push((await effect).micros - began);
    }
    return trips;
  },

  succession: async ({ timeoutMs }) => {
    const run = runs.at(-1);
    const { micros } = await wait((f) => f.run_id === run && f.type === "run.resumed", timeoutMs);
    const next = await wait((f) => f.run_id === run && f.type === "message.started", timeoutMs);
    return { resumed: micros, wentOn: next.micros };
  },

  cancel: async () => {
    for (const run_id of runs.splice(0)) {
      const over = wait((f) => f.run_id === run_id && f.type === "run.cancelled");
      await ask({ type: "run.cancel", session_id: session, run_id, payload: {} });
      await over;
    }
  },
};

serve(methods);

function connect(server: ServerAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    openSocket(
      {
        host: HOST,
        port: server.port,
        path: "/v1/connect",
        protocols: [SUBPROTOCOL],
        headers: server.token === undefined ? {} : { Authorization: `Bearer ${server.token}` },
      },
      {
        opened: (opened) => {
          socket = opened;
          resolve();
        },
        text: (data, start, end) => take(data.toString("utf8", start, end)),
        closed: reject,
      },
    );
  });
}

function take(text: string): void {
  const micros = sharedMicros();
  // The edge's own frames: what a field of them is, the protocol says.
  const frame = JSON.parse(text) as Frame;
  for (const waiter of waiters) {
    if (!waiter.matches(frame)) continue;
    waiters.delete(waiter);
    waiter.resolve({ frame, micros });
  }
}

function wait(
  matches: (frame: Frame) => boolean,
  timeoutMs = WAIT_MS,
): Promise<{ frame: Frame; micros: number }> {
  return new Promise((resolve, reject) => {
    const waiter: Waiter = {
      matches,
      resolve: (at) => {
        clearTimeout(timer);
        resolve(at);
      },
    };
    const timer = setTimeout(() => {
      waiters.delete(waiter);
      reject(new Error(`not within ${timeoutMs} ms: ${matches.toString()}`));
    }, timeoutMs);
    waiters.add(waiter);
  });
}

/** Sends a command and waits for the edge's answer to it. */
async function ask(
  command: Readonly<Record<string, unknown>>,
): Promise<{ frame: Frame; micros: number }> {
  const { id = nextId() } = command;
  const answer = wait((f) => f.seq === undefined && f.id === id);
  socket?.send(JSON.stringify({ ...command, id }));
  const at = await answer;
  if (at.frame.type === "command.rejected" || at.frame.type === "error")
    throw new Error(`the edge refused: ${JSON.stringify(at.frame)}`);
  return at;
}

function nextId(): string {
  commands += 1;
  return `bench-${process.pid}-${commands}`;
}

async function bareRequest(subject: string): Promise<void> {
  await nats?.request(subject, PAYLOAD, { timeout: REQUEST_MS });
}

async function timed(work: () => Promise<void>): Promise<number> {
  const began = sharedMicros();
  await work();
  return sharedMicros() - began;
}
