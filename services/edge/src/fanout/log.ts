import type {
  EphemeralMessage,
  Head,
  LogFilter,
  LogMessage,
  Page,
  ReadLimit,
  TailSink,
} from "@throughline/broker";

/** What the fan-out reads: the broker's event log, or a test's with losses and disorder at will. */
export interface EventSource {
  /** Stored messages after `after`. With `upTo`, `end` is what the stream's leader confirms. */
  read(filter: LogFilter, after: number, limit: ReadLimit): Promise<Page<LogMessage>>;
  /** From a replica, "none" and "older" prove nothing. */
  last(filter: LogFilter, from: "leader" | "replica"): Promise<LogMessage | undefined>;
  head(ref: { readonly tenant: string; readonly session: string }): Promise<Head>;
  tail(filter: LogFilter, after: number, sink: TailSink<LogMessage>): { close(): void };
  ephemeral(filter: LogFilter, onMessage: (m: EphemeralMessage) => void): { close(): void };
}
