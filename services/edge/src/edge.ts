import { type Broker, offload, openAgentDirectory } from "@throughline/broker";
import { randomBytes } from "node:crypto";
import { setImmediate as turn, setTimeout as wait } from "node:timers/promises";
import { LongPolls } from "./api/long-polls.ts";
import { apiRoutes } from "./api/routes.ts";
import { Origins } from "./auth/origins.ts";
import { TrustedProxies } from "./auth/proxies.ts";
import { StreamTickets } from "./auth/stream-tickets.ts";
import { authenticate } from "./auth/token.ts";
import { MembershipLists } from "./commands/membership-lists.ts";
import type { CommandServices } from "./commands/services.ts";
import { SessionRecords } from "./commands/sessions.ts";
import { Budget } from "./fanout/budget.ts";
import { fanoutMetrics } from "./fanout/fanout-metrics.ts";
import { Hubs } from "./fanout/hubs.ts";
import { FANOUT_LIMITS, type FanoutLimits, maxBackpressure } from "./fanout/limits.ts";
import type { FanoutNode } from "./fanout/node.ts";
import { Reads } from "./fanout/reads.ts";
import { Turn } from "./fanout/turn.ts";
import { Slots } from "./lifecycle/admission.ts";
import { drain } from "./lifecycle/drain.ts";
import { Sweep } from "./lifecycle/sweep.ts";
import type { Log } from "./log.ts";
import { connectionMetrics, type Measured } from "./metrics.ts";
import { RunStates } from "./runs/run-states.ts";
import type { RunSource } from "./runs/session-runs.ts";
import { SessionViews } from "./runs/session-view.ts";
import { Connection } from "./session/connection.ts";
import {
  CONNECTION_LIMITS,
  type ConnectionLimits,
  type ConnectionServices,
  countClose,
} from "./session/connection-services.ts";
import { EventStream } from "./session/event-stream.ts";
import { inflowLimits } from "./session/inflow.ts";
import { MAX_FRAME_BYTES } from "@throughline/protocol";
import { serveRoutes } from "./transport/http.ts";
import { closeListener, type Listener, listen } from "./transport/listen.ts";
import { StreamTopics } from "./transport/stream-topics.ts";
import type { Uws } from "./transport/uws.ts";
import { serveWebSocket } from "./transport/websocket.ts";

export interface EdgeOptions {
  readonly nodeId: string;
  readonly host: string;
  /** Own port, exclusively; 0 for any free one. */
  readonly port: number;
  /** A port shared with other processes of this machine. */
  readonly sharedPort: number | undefined;
  readonly devTokens: boolean;
  /** Addresses or networks of load balancers, whose `X-Forwarded-For` is believed. */
  readonly trustedProxies: readonly string[];
  /** Of pages that may use this node, besides those of this machine in local mode. */
  readonly allowedOrigins: readonly string[];
  /** Of stream tickets: the first signs. The same on all nodes. */
  readonly streamKeys: readonly string[];
  readonly maxConnections: number;
  /** From each client, in the long run. */
  readonly framesPerSecond: number;
  readonly fanoutBytes: number;
  readonly deadlineMs: number;
  readonly drainDelayMs: number;
  readonly drainMs: number;
  /** For tests of what needs time or volume. */
  readonly limits?: {
    readonly fanout?: Partial<FanoutLimits>;
    readonly connection?: Partial<ConnectionLimits>;
    /** Whole seconds, 8 to 960. */
    readonly idleTimeoutS?: number;
  };
}

export interface Edge {
  readonly port: number;
  readonly measured: Measured;
  /** Whether new clients should be sent here, and why not. */
  readiness(): { readonly ok: boolean; readonly checks: Record<string, string> };
  /** Lets go of all clients. Resolves when the last is closed. */
  drain(): Promise<void>;
  close(): void;
}

/** `leaving`: not ready any more, but new connections are still taken. */
type Phase = "serving" | "leaving" | "draining" | "closed";

/** Seconds. uWebSockets pings a silent peer some 16 s before. */
const IDLE_TIMEOUT_S = 60;
const HANDSHAKES = 1_000;
const REQUESTS = 1_000;
const ATTACHES = 256;
/** Each holds an object of up to 32 MiB. */
const DOWNLOADS = 8;
const SWEEP_TICK_MS = 250;
const SWEEP_TICKS = 20;
/** A NATS that is away for less is no reason to send clients elsewhere. */
const NATS_GRACE_MS = 5_000;

/**
 * Puts the edge together over an open broker. Rejects with PortUnavailable.
 * It holds nothing that cannot be lost: killed, its clients go on elsewhere from their cursors.
 */
export async function startEdge(
  options: EdgeOptions,
  broker: Broker,
  uws: Uws,
  log: Log,
): Promise<Edge> {
  let phase: Phase = "serving";
  // Moved on by each tick of the sweep: all that asks for it counts in seconds, and it is asked for
  // at each event.
  let time = performance.now();
  const now = (): number => time;
  const app = uws.module.App();

  const streamTopics = new StreamTopics();
  const limits = { ...FANOUT_LIMITS, ...options.limits?.fanout };
  const fanout: FanoutNode = {
    log: broker.events,
    publisher: {
      publish: (topic, frame) => {
        app.publish(topic, frame, false, false);
        streamTopics.publish(topic, frame);
      },
    },
    turn: new Turn(limits, setImmediate),
    budget: new Budget(options.fanoutBytes),
    reads: new Reads(limits.reads),
    limits,
    metrics: fanoutMetrics(),
    report: (err, { kind, session }) =>
      log.error({ err, kind, session }, "a log cannot be followed"),
    now,
    after: (ms, run) => setTimeout(run, ms).unref(),
  };
  const hubs = new Hubs(fanout);
  const sessions = new SessionRecords(broker.sessions, now);
  const states = new RunStates(broker.events, broker.snapshots, fanout.reads);
  const runs: RunSource = {
    list: (ref) => broker.runs.list(ref, Infinity),
    logged: (ref) => broker.events.runs(ref),
  };
  const views = new SessionViews(runs, states, log);
  const memberships = new MembershipLists(broker.sessionIndex);
  const commands: CommandServices = {
    events: broker.events,
    commands: broker.commands,
    sessions,
    creator: broker.sessions,
    memberships,
    runIndex: broker.runs,
    states,
    offload: (ref, value) => offload(broker.objects, ref, value),
    log,
    wallClock: Date.now,
    wait: (ms) => wait(ms),
    deadlineMs: options.deadlineMs,
  };
  const services: ConnectionServices = {
    subscribing: {
      node: fanout,
      hubs,
      sessions,
      snapshots: broker.snapshots,
      views,
      attaches: new Slots(ATTACHES, options.maxConnections),
      log,
    },
    commands,
    limits: {
      ...CONNECTION_LIMITS,
      inflow: inflowLimits(options.framesPerSecond),
      ...options.limits?.connection,
    },
    nodeId: options.nodeId,
    now,
    metrics: connectionMetrics(),
  };

  const connections = new Slots(options.maxConnections, 0);
  const handshakes = new Slots(HANDSHAKES, 0);
  const requests = new Slots(REQUESTS, 0);
  const sweep = new Sweep<Connection | EventStream>(SWEEP_TICKS);
  const isAccepting = (): boolean => phase === "serving" || phase === "leaving";
  const origins = new Origins({ allowed: options.allowedOrigins, local: options.devTokens });
  const auth: Parameters<typeof authenticate>[2] = {
    devTokens: options.devTokens,
    proxies: new TrustedProxies(options.trustedProxies),
    origins,
  };
  serveWebSocket(app, "/v1/connect", {
    maxBackpressure: maxBackpressure(limits),
    idleTimeout: options.limits?.idleTimeoutS ?? IDLE_TIMEOUT_S,
    connections,
    handshakes,
    log,
    authenticate: (token, head) => authenticate(token, head, auth),
    isAccepting,
    turnedAway: (code) => countClose(services.metrics, code),
    open: (socket, principal, { subscribe, fault }) => {
      const connection = new Connection(services, socket, principal, () =>
        sweep.remove(connection),
      );
      sweep.add(connection);
      connection.open(`con_${randomBytes(9).toString("base64url")}`, subscribe, fault);
      return connection;
    },
  });
  const polls = new LongPolls(hubs, connections);
  const routes = apiRoutes({
    commands,
    log: broker.events,
    snapshots: broker.snapshots,
    views,
    records: broker.sessions,
    sessionLists: memberships,
    runs: broker.runs,
    objects: broker.objects,
    agents: openAgentDirectory(broker),
    downloads: new Slots(DOWNLOADS, 0),
    polls,
    origins,
    tickets: new StreamTickets(options.streamKeys, Date.now),
    streams: {
      take: () => {
        if (!isAccepting()) return "leaving";
        return connections.tryTake() ? "taken" : "full";
      },
      open: (socket, principal, request) => {
        const stream = new EventStream(services, socket, principal, request, () => {
          sweep.remove(stream);
          connections.give();
        });
        sweep.add(stream);
        return stream.open();
      },
    },
    authenticate: (token, head) => authenticate(token, head, auth),
  });
  serveRoutes(app, routes, {
    maxBodyBytes: MAX_FRAME_BYTES,
    requests,
    isLeaving: () => phase !== "serving",
    allowsOrigin: (head) => origins.allows(head),
    streaming: {
      topics: streamTopics,
      maxBackpressure: maxBackpressure(limits),
      isLeaving: () => phase !== "serving",
      afterTurn: setImmediate,
    },
    log,
  });

  const listeners: Listener[] = [];
  const { host, port, sharedPort } = options;
  listeners.push(await listen(uws, app, { host, port, shared: false, setting: "TL_PORT" }));
  if (sharedPort !== undefined) {
    const shared = { host, port: sharedPort, shared: true, setting: "TL_SHARED_PORT" };
    listeners.push(await listen(uws, app, shared));
  }
  const stopListening = (): void => {
    for (const listener of listeners.splice(0)) closeListener(uws, listener);
  };

  const timer = setInterval(() => {
    time = performance.now();
    sweep.tick(time);
    hubs.sweep(time);
  }, SWEEP_TICK_MS);
  let natsDownAt: number | undefined;
  const unwatch = broker.onConnection((state) => {
    natsDownAt = state === "up" ? undefined : now();
    log.warn({ nats: state }, `NATS is ${state}`);
  });

  const ownPort = listeners[0]?.port ?? port;
  return {
    port: ownPort,
    measured: {
      fanout: fanout.metrics,
      connection: services.metrics,
      budget: fanout.budget,
      hubs,
      connections,
      attaches: services.subscribing.attaches,
      isNatsUp: () => broker.connection === "up",
    },
    readiness: () => {
      const nats = natsDownAt !== undefined && now() - natsDownAt > NATS_GRACE_MS ? "away" : "up";
      return { ok: phase === "serving" && nats === "up", checks: { nats, edge: phase } };
    },
    drain: async () => {
      if (phase !== "serving") return;
      phase = "leaving";
      await drain({
        delayMs: options.drainDelayMs,
        spreadMs: options.drainMs,
        connections: () => [...sweep.items()],
        open: () => sweep.size,
        arrivals: () => handshakes.granted + requests.granted,
        requests: () => requests.taken,
        stopListening: () => {
          phase = "draining";
          stopListening();
          polls.leave();
        },
        random: Math.random,
        now: () => performance.now(),
        wait: (ms) => wait(ms),
        turn: () => turn(),
      });
    },
    close: () => {
      phase = "closed";
      stopListening();
      clearInterval(timer);
      unwatch();
      for (const connection of [...sweep.items()]) connection.close(1012, "this node is stopping");
      hubs.close();
      // Load balancers keep idle connections: a request that goes to one of them now is better off with
      // a connection that is closed than with an answer from a node that has left NATS.
      app.close();
    },
  };
}
