import { connect, type NatsConnection, type NodeConnectionOptions } from "@nats-io/transport-node";
import { BrokerMisfit, BrokerUnavailable } from "./errors.ts";

export type NatsAuth =
  | { readonly kind: "none" }
  | { readonly kind: "user"; readonly user: string; readonly pass: string }
  | { readonly kind: "token"; readonly token: string };

export interface ConnectOptions {
  readonly servers: readonly string[];
  /** Shown in NATS's connection list. */
  readonly name: string;
  readonly auth?: NatsAuth;
  /** How long the first connect may take before it fails, in ms (default 30,000). */
  readonly connectTimeoutMs?: number;
  /** Told of every change; the first "up" is the return of `connectNats`. */
  readonly onChange: (state: ConnectionState) => void;
}

export type ConnectionState = "up" | "down";

/** Batched Direct Get and a fence that holds on clusters: neither is there before (ARCHITECTURE §2). */
const OLDEST = [2, 11] as const;

function authOptions(auth: NatsAuth | undefined): Partial<NodeConnectionOptions> {
  switch (auth?.kind) {
    case "user":
      return { user: auth.user, pass: auth.pass };
    case "token":
      return { token: auth.token };
    case "none":
    case undefined:
      return {};
  }
}

function assertVersion(version: string | undefined): void {
  const [major = 0, minor = 0] = (version ?? "").split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return;
  throw new BrokerMisfit(
    `nats-server ${version ?? "of unknown version"} is too old: ${OLDEST.join(".")} or newer is needed ` +
      "(batched Direct Get, and fenced appends that hold on a cluster). Upgrade nats-server.",
  );
}

/**
 * One NATS connection that never gives up. A hung server is found in about 5 s
 * (the client's default is two minutes).
 */
export async function connectNats(options: ConnectOptions): Promise<NatsConnection> {
  const timeoutMs = options.connectTimeoutMs ?? 30_000;
  const giveUpAt = Date.now() + timeoutMs;
  const nc = await firstConnect(options, giveUpAt);
  try {
    assertVersion(nc.info?.version);
  } catch (error) {
    await nc.close();
    throw error;
  }
  void watch(nc, options.onChange);
  return nc;
}

async function firstConnect(options: ConnectOptions, giveUpAt: number): Promise<NatsConnection> {
  for (;;) {
    try {
      return await connect({
        servers: [...options.servers],
        name: options.name,
        ...authOptions(options.auth),
        maxReconnectAttempts: -1,
        reconnectTimeWait: 250,
        reconnectJitter: 250,
        pingInterval: 2_500,
        maxPingOut: 2,
        timeout: 5_000,
        ignoreAuthErrorAbort: true,
      });
    } catch (error) {
      if (Date.now() >= giveUpAt) {
        throw new BrokerUnavailable(
          `no NATS server answers at ${options.servers.join(", ")}: is nats-server running?`,
          { cause: error },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }
}

async function watch(
  nc: NatsConnection,
  onChange: (state: ConnectionState) => void,
): Promise<void> {
  for await (const status of nc.status()) {
    if (status.type === "disconnect" || status.type === "close") onChange("down");
    if (status.type === "reconnect") onChange("up");
  }
}
