/** A TCP proxy that stands between two real processes and behaves like a bad network. */
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type Faults, openLane } from "./proxy-lane.ts";

/** `up`: from who connected to the target. `down`: from the target. */
export type Direction = "up" | "down";

/** Sees every chunk of one connection; what it returns goes on, `undefined` is dropped. */
export interface Tap {
  readonly up?: (chunk: Buffer) => Buffer | undefined;
  readonly down?: (chunk: Buffer) => Buffer | undefined;
}

export interface TapContext {
  /** 1 for the first connection. */
  readonly connection: number;
  /** Sends bytes of one's own, behind what is queued. */
  readonly inject: (direction: Direction, bytes: Buffer) => void;
}

export type MakeTap = (context: TapContext) => Tap;

export interface TcpProxy {
  readonly port: number;
  /** `127.0.0.1:<port>` */
  readonly address: string;
  /** Connections open now. */
  readonly open: number;
  /** Of these, those that one side has broken off and the other, behind a stall, does not know of. */
  readonly broken: number;
  /** Connections accepted so far. */
  readonly accepted: number;
  /** Bytes forwarded so far. */
  readonly bytes: Readonly<Record<Direction, number>>;
  /** One-way delay of what arrives from now on. */
  readonly latency: (ms: number, direction?: Direction) => void;
  /** At most so many bytes a second on each connection; `Infinity` ends it. */
  readonly drip: (bytesPerSecond: number, direction?: Direction) => void;
  /** Half-open: nothing is forwarded, not even an end, and nothing is closed. New connections are silent too. */
  readonly stall: (direction?: Direction) => void;
  /** Ends `stall`; what was held back is forwarded. */
  readonly flow: () => void;
  /** Resets every open connection, on both sides. New ones are taken. */
  readonly cut: () => void;
  /** Refuses new connections; open ones go on. */
  readonly refuse: () => void;
  /** Ends `refuse`, on the same port. */
  readonly accept: () => Promise<void>;
  /** Taps the connections opened from now on. */
  readonly tap: (make: MakeTap | undefined) => void;
  /** Cuts and stops listening. */
  readonly close: () => void;
}

const DIRECTIONS: readonly Direction[] = ["up", "down"];

/** Listens on a free loopback port and forwards to `target`. */
export async function tcpProxy(target: { port: number; host?: string }): Promise<TcpProxy> {
  const faults: Record<Direction, Faults> = { up: noFaults(), down: noFaults() };
  const bytes: Record<Direction, number> = { up: 0, down: 0 };
  const pairs = new Set<Pair>();
  let makeTap: MakeTap | undefined;
  let accepted = 0;

  const take = (client: Socket): void => {
    accepted++;
    const upstream = connect({
      port: target.port,
      host: target.host ?? "127.0.0.1",
      allowHalfOpen: true,
    });
    upstream.setNoDelay(true);
    const pair = openPair({ client, upstream, faults, bytes, makeTap, connection: accepted });
    pairs.add(pair);
    void pair.closed.then(() => pairs.delete(pair));
  };
  let server: Server | undefined = await listen(0, take);
  const { port } = server.address() as AddressInfo;

  const change = (direction: Direction | undefined, fault: Partial<Faults>): void => {
    for (const each of DIRECTIONS)
      if (direction === undefined || direction === each) Object.assign(faults[each], fault);
    for (const pair of pairs) pair.pump();
  };
  const cut = (): void => {
    for (const pair of pairs) pair.reset();
  };
  const refuse = (): void => {
    server?.close();
    server = undefined;
  };

  return {
    port,
    address: `127.0.0.1:${port}`,
    bytes,
    get open() {
      return pairs.size;
    },
    get broken() {
      return [...pairs].filter((pair) => pair.isBroken()).length;
    },
    get accepted() {
      return accepted;
    },
    latency: (latencyMs, direction) => change(direction, { latencyMs }),
    drip: (bytesPerSecond, direction) => change(direction, { bytesPerSecond }),
    stall: (direction) => change(direction, { stalled: true }),
    flow: () => change(undefined, { stalled: false }),
    cut,
    refuse,
    accept: async () => {
      server ??= await listen(port, take);
    },
    tap: (make) => {
      makeTap = make;
    },
    close: () => {
      cut();
      refuse();
    },
  };
}

interface Pair {
  readonly closed: Promise<void>;
  readonly pump: () => void;
  readonly reset: () => void;
  readonly isBroken: () => boolean;
}

interface PairOptions {
  client: Socket;
  upstream: Socket;
  faults: Record<Direction, Faults>;
  bytes: Record<Direction, number>;
  makeTap: MakeTap | undefined;
  connection: number;
}

function openPair({ client, upstream, faults, bytes, makeTap, connection }: PairOptions): Pair {
  const sockets = [client, upstream];
  const tap =
    makeTap?.({ connection, inject: (direction, chunk) => lanes[direction].push(chunk) }) ?? {};
  const lane = (direction: Direction, from: Socket, to: Socket): ReturnType<typeof openLane> =>
    openLane({
      from,
      to,
      faults: faults[direction],
      filter: tap[direction] ?? ((chunk) => chunk),
      forwarded: (count) => {
        bytes[direction] += count;
      },
    });
  const lanes = { up: lane("up", client, upstream), down: lane("down", upstream, client) };

  // A peer that broke off is passed on as a reset, but not through a stalled proxy: silence is the fault then.
  let broken = false;
  const stalled = (): boolean => faults.up.stalled || faults.down.stalled;
  const reset = (): void => {
    for (const each of DIRECTIONS) lanes[each].close();
    for (const socket of sockets) socket.resetAndDestroy();
  };
  const pump = (): void => {
    if (broken && !stalled()) reset();
    else for (const each of DIRECTIONS) lanes[each].pump();
  };
  for (const socket of sockets) {
    socket.on("error", () => {
      broken = true;
      if (!stalled()) reset();
    });
  }
  const closed = Promise.all(
    sockets.map((socket) => new Promise((resolve) => socket.once("close", resolve))),
  );
  return { closed: closed.then(() => undefined), pump, reset, isBroken: () => broken };
}

function noFaults(): Faults {
  return { latencyMs: 0, bytesPerSecond: Infinity, stalled: false };
}

function listen(port: number, take: (client: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, take);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}
