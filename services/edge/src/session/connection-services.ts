import { HEARTBEAT_INTERVAL_MS } from "@throughline/protocol";
import type { CommandServices } from "../commands/services.ts";
import type { InflowLimits } from "./inflow.ts";
import type { SubscribeServices } from "./subscribe.ts";

/** Times in ms. */
export interface ConnectionLimits {
  /** Sent nothing for this long: a heartbeat. */
  readonly quietMs: number;
  /** An event stream that was sent nothing for this long: a comment. */
  readonly commentMs: number;
  /** Heard nothing for this long: pinged. */
  readonly probeMs: number;
  /** Heard nothing for this long: closed with 4408. */
  readonly silentMs: number;
  /** Waits for its socket without any progress for this long: closed with 4410. */
  readonly stuckMs: number;
  /** How often it is looked whether the user still has a part in the sessions that are followed. */
  readonly membershipMs: number;
  readonly inflow: InflowLimits;
}

/**
 * Load balancers and NATs commonly forget a connection that is quiet for 60 s, so neither direction is: a
 * heartbeat goes out after 20 s (25 with the sweep's round), and a client that says nothing is asked by a
 * ping after 25 (30), which browsers answer in hidden tabs too, whose timers are throttled. Whatever is
 * written to a connection not heard of for longer has that ping before it: a peer that is gone without a
 * word is found within the minute. uWebSockets pings once more after 44 s of its 60 and drops at 60, which
 * a client sees as 1006: between 55 and that, one that wakes up still reads why it was closed.
 */
export const CONNECTION_LIMITS: Omit<ConnectionLimits, "inflow"> = {
  quietMs: HEARTBEAT_INTERVAL_MS,
  commentMs: 15_000,
  probeMs: 25_000,
  silentMs: 55_000,
  stuckMs: 30_000,
  // One small read for each session that is followed and node, whatever the number of clients.
  membershipMs: 30_000,
};

export interface ConnectionServices {
  readonly subscribing: SubscribeServices;
  readonly commands: CommandServices;
  readonly limits: ConnectionLimits;
  readonly nodeId: string;
  /** ms, monotonic. */
  readonly now: () => number;
  readonly metrics: ConnectionMetrics;
}

export interface ConnectionMetrics {
  received: number;
  unreadable: number;
  /** Refused since they were too many at once. */
  limited: number;
  sentControl: number;
  accepted: number;
  rejected: number;
  /** Closes that the node decided on, by code. */
  readonly closed: Map<number, number>;
}

/** Called with each close that the node decides on. */
export function countClose({ closed }: ConnectionMetrics, code: number): void {
  closed.set(code, (closed.get(code) ?? 0) + 1);
}
