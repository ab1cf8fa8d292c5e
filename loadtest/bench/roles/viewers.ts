/** Role: everybody who watches. Thousands of sockets that subscribe, and count what they get. */
import { type NatsConnection, connect as connectNats } from "@nats-io/transport-node";
import { SUBPROTOCOL } from "@throughline/protocol";
import { sharedMicros } from "../process/proc.ts";
import { serve } from "@throughline/testkit";
import { type ClientSocket, openSocket, Refused } from "../websocket/socket.ts";
import { kindOf } from "../websocket/kinds.ts";
import { stampOf } from "./stamp.ts";

export interface ServerAddress {
  readonly port: number;
  /** Absent for the bare server. */
  readonly token?: string;
}

export interface Watched {
  readonly session: string;
  readonly run: string;
}

/** Frames that a group of viewers has got since it connected. */
export interface Counts {
  durables: number;
  deltas: number;
  durableBytes: number;
  deltaBytes: number;
  /** Connections that ended without being asked to. */
  lost: number;
  /** The first reason for that. */
  why: string;
}

/** Where a sample was taken: of the edge's two kinds of frames, or straight from NATS. */
export type Path = "durable" | "delta" | "nats" | "republished";

interface Group {
  readonly sockets: Set<ClientSocket>;
  readonly counts: Counts;
}

/** Microseconds from the making of a frame to its viewer. */
export type Samples = Readonly<Record<Path, readonly number[]>>;

export type ViewersMethods = {
  /** Creates sessions through the edge, as a client does; their ids derive from the command ids. */
  readonly createSessions: (q: {
    server: ServerAddress;
    commandIds: readonly string[];
  }) => Promise<void>;
  /** Opens `each` sockets on every run; resolves, with the number of all, when they are level with the log. */
  readonly watch: (q: {
    group: string;
    server: ServerAddress;
    runs: readonly Watched[];
    each: number;
  }) => Promise<number>;
  readonly counts: (q: { group: string }) => Counts;
  /** Resolves when a group has got so many frames in all, or when that takes too long. */
  readonly reached: (q: { group: string; frames: number; timeoutMs: number }) => Promise<Counts>;
  readonly leave: (q: { group: string }) => void;
  /** From now on stamps are read, of frames and of two bare NATS subscriptions beside them. */
  readonly readStamps: (q: { natsUrl: string; bare: string; republished: string }) => Promise<void>;
  /** All samples since the last call. */
  readonly takeSamples: (q: object) => Samples;
};

const groups = new Map<string, Group>();
const samples: Record<Path, number[]> = { durable: [], delta: [], nats: [], republished: [] };
let stamped = false;
let nats: NatsConnection | undefined;

const HOST = "127.0.0.1";
/** Handshakes and attaches in flight: below what an edge admits, so that none is refused in a normal run. */
const AT_ONCE = 32;
const OPEN_MS = 20_000;

const methods: ViewersMethods = {
  createSessions: async ({ server, commandIds }) => {
    for (const id of commandIds) await createSession(server, id);
  },

  watch: async ({ group: name, server, runs, each }) => {
    const group = groupOf(name);
    const wanted = Array.from({ length: runs.length * each }, (_, i) => runs[i % runs.length]);
    let next = 0;
    const worker = async (): Promise<void> => {
      for (let run = wanted[next++]; run !== undefined; run = wanted[next++]) {
        const watched = run;
        await patiently(() => subscribe(server, watched, group));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return group.sockets.size;
  },

  counts: ({ group }) => groupOf(group).counts,

  reached: async ({ group, frames, timeoutMs }) => {
    const { counts } = groupOf(group);
    const giveUpAt = performance.now() + timeoutMs;
    while (counts.durables + counts.deltas < frames && performance.now() < giveUpAt) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return counts;
  },

  leave: ({ group }) => {
    for (const socket of groupOf(group).sockets) socket.destroy();
    groups.delete(group);
  },

  readStamps: async ({ natsUrl, bare, republished }) => {
    nats ??= await connectNats({ servers: natsUrl, name: "bench viewers" });
    for (const [path, subject] of [
      ["nats", bare],
      ["republished", republished],
    ] as const) {
      nats.subscribe(subject, {
        callback: (error, message) => {
          if (error) throw error;
          sample(path, Buffer.from(message.data).toString("utf8"), sharedMicros());
        },
      });
    }
    await nats.flush();
    stamped = true;
  },

  takeSamples: () => ({
    durable: samples.durable.splice(0),
    delta: samples.delta.splice(0),
    nats: samples.nats.splice(0),
    republished: samples.republished.splice(0),
  }),
};

serve(methods);

function groupOf(name: string): Group {
  let group = groups.get(name);
  if (group === undefined) {
    const counts = { durables: 0, deltas: 0, durableBytes: 0, deltaBytes: 0, lost: 0, why: "" };
    group = { sockets: new Set(), counts };
    groups.set(name, group);
  }
  return group;
}

function target(server: ServerAddress): Parameters<typeof openSocket>[0] {
  return {
    host: HOST,
    port: server.port,
    path: "/v1/connect",
    protocols: [SUBPROTOCOL],
    headers: server.token === undefined ? {} : { Authorization: `Bearer ${server.token}` },
  };
}

/** A connection refused because too many came at once is tried again. */
async function patiently(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      const later = error instanceof Refused && error.status === 503;
      if (!later || attempt === 20) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100 * attempt));
    }
  }
}

function createSession(server: ServerAddress, id: string): Promise<void> {
  return conversation("session.created", server, (socket, frame) => {
    if (frame["type"] !== "welcome") return;
    socket.send(JSON.stringify({ type: "session.create", id, payload: {} }));
  }).then(({ socket }) => socket.destroy());
}

async function subscribe(server: ServerAddress, run: Watched, group: Group): Promise<void> {
  const { counts, sockets } = group;
  const { socket, handOver } = await conversation("caught_up", server, (opened, frame) => {
    if (frame["type"] !== "welcome") return;
    const { session: session_id, run: run_id } = run;
    opened.send(JSON.stringify({ type: "subscribe", id: "s1", session_id, run_id, payload: {} }));
  });
  sockets.add(socket);
  handOver({
    text: (data, start, end) => count(counts, data, start, end),
    closed: (error) => {
      sockets.delete(socket);
      counts.lost += 1;
      counts.why ||= error.message;
    },
  });
}

interface Steady {
  text(data: Buffer, start: number, end: number): void;
  closed(error: Error): void;
}

/**
 * Opens a socket and talks until a frame of type `until` comes. What comes after it goes to
 * whoever the socket is handed over to.
 */
function conversation(
  until: string,
  server: ServerAddress,
  on: (socket: ClientSocket, frame: Record<string, unknown>) => void,
): Promise<{ socket: ClientSocket; handOver: (steady: Steady) => void }> {
  return new Promise((resolve, reject) => {
    let socket: ClientSocket | undefined;
    let steady: Steady | undefined;
    const early: Buffer[] = [];
    let talking = true;
    const timer = setTimeout(() => fail(new Error(`no ${until} within ${OPEN_MS} ms`)), OPEN_MS);
    const fail = (error: Error): void => {
      clearTimeout(timer);
      socket?.destroy();
      if (steady) steady.closed(error);
      else if (error instanceof Refused) reject(error);
      else reject(new Error(`waiting for ${until}: ${error.message}`, { cause: error }));
    };
    const handOver = (to: Steady): void => {
      steady = to;
      for (const data of early) to.text(data, 0, data.byteLength);
    };
    openSocket(target(server), {
      opened: (opened) => {
        socket = opened;
      },
      text: (data, start, end) => {
        if (steady) return steady.text(data, start, end);
        if (!talking) {
          early.push(Buffer.from(data.subarray(start, end)));
          return;
        }
        if (socket === undefined) return;
        const frame = JSON.parse(data.toString("utf8", start, end)) as Record<string, unknown>;
        if (frame["type"] === "error" || frame["type"] === "command.rejected") {
          fail(new Error(`the edge refused: ${JSON.stringify(frame)}`));
        } else if (frame["type"] === until) {
          clearTimeout(timer);
          talking = false;
          resolve({ socket, handOver });
        } else {
          on(socket, frame);
        }
      },
      closed: fail,
    });
  });
}

function count(counts: Counts, data: Buffer, start: number, end: number): void {
  const kind = kindOf(data, start);
  if (kind === "other") return;
  if (kind === "durable") {
    counts.durables += 1;
    counts.durableBytes += end - start;
  } else {
    counts.deltas += 1;
    counts.deltaBytes += end - start;
  }
  if (stamped) sample(kind, data.toString("utf8", start, end), sharedMicros());
}

function sample(path: Path, text: string, now: number): void {
  for (const at of stampOf(text)) samples[path].push(now - at);
}
