import type { ViewerReport } from "./record.ts";

/** A run to be watched, and the way there. */
export interface Watch {
  /** `http://…` of an edge or a load balancer; several: the next one after each loss. */
  readonly urls: readonly string[];
  readonly token: string;
  readonly session: string;
  readonly run: string;
}

/** `socket`: the client SDK over a WebSocket. `stream`: SSE. */
export type Transport = "socket" | "stream";

export interface Viewers extends Watch {
  readonly transport: Transport;
  readonly count: number;
}

export type MemberMethods = {
  /** Opens viewers; resolves when all of them are level. */
  readonly watch: (viewers: Viewers) => Promise<void>;
  /** Resolves when all are level and have seen this event, or when that takes too long; how many have not. */
  readonly reached: (q: { seq: number; timeoutMs: number }) => Promise<number>;
  readonly reports: (q: object) => readonly (ViewerReport & { readonly transport: Transport })[];
};
