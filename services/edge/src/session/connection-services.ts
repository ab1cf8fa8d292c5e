import { HEARTBEAT_INTERVAL_MS } from "@throughline/protocol";
import type { CommandServices } from "../commands/services.ts";
import type { SubscribeServices } from "./subscribe.ts";

/** Times in ms. */
export interface ConnectionLimits {
  /** Sent nothing for this long: a heartbeat. */
  readonly quietMs: number;
  /** An event stream that was sent nothing for this long: a comment. */
  readonly commentMs: number;
  /** Heard nothing for this long: closed with 4408. */
  readonly silentMs: number;
  /** Waits for its socket without any progress for this long: closed with 4410. */
  readonly stuckMs: number;
  /** How often it is looked whether the user still has a part in the sessions that are followed. */
  readonly membershipMs: number;
}

/**
 * uWebSockets pings a silent peer after 44 s of its 60 and drops it at 60, which a client sees as
 * 1006. Between the two, a client that wakes up still reads why it was closed.
 */
export const CONNECTION_LIMITS: ConnectionLimits = {
  quietMs: HEARTBEAT_INTERVAL_MS,
  commentMs: 15_000,
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
