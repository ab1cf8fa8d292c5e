export type { RunPosition } from "./append.ts";
export {
  AgentDirectory,
  type AgentDirectoryOptions,
  type AgentKind,
  type Announcement,
  openAgentDirectory,
} from "./agent-directory.ts";
export { type Broker, type BrokerOptions, openBroker } from "./broker.ts";
export type { RunClaim } from "./claim.ts";
export type { CommandKey, CommandLog, CommandOutcome, CommandRequest } from "./command-log.ts";
export type { CommandSink, CommandTail, StoredCommand } from "./command-tail.ts";
export type { ConnectionState, NatsAuth } from "./connect.ts";
export type { EphemeralMessage, NewEphemeral } from "./ephemeral.ts";
export {
  BrokerMisfit,
  BrokerUnavailable,
  EventTooLarge,
  FencedError,
  LogCorrupt,
  ObjectGone,
  QueueFull,
  ValueTooLarge,
  WriterFailed,
} from "./errors.ts";
export type { EventLog, Head, LogFilter, ReadLimit } from "./event-log.ts";
export type { EventTail } from "./event-tail.ts";
export type { LogMessage } from "./headers.ts";
export { bodyHash, deriveRunId, deriveSessionId, type RunRef, type SessionRef } from "./ids.ts";
export { isArtifactRef, offload, resolve } from "./large-value.ts";
export type { ArtifactRef, ObjectStat, ObjectStore } from "./object-store.ts";
export type { RecoveredRun } from "./recover.ts";
export { checkRetention, type RetentionOptions } from "./retention.ts";
export type { RunEntry, RunIndex } from "./run-index.ts";
export { openRunQueue, type RunQueue, type RunQueueOptions } from "./run-queue.ts";
export {
  type AppendOptions,
  type MessageAt,
  openRunWriter,
  RunWriter,
  type RunWriterOptions,
  type StoredAt,
} from "./run-writer.ts";
export type { SessionEntry, SessionIndex, SessionPage } from "./session-index.ts";
export type { SessionOutcome, SessionRecord, SessionStore } from "./session-store.ts";
export type { Snapshot, SnapshotStore } from "./snapshot-store.ts";
export type { StartOutcome, StartRequest } from "./start.ts";
export { openSweep, type Sweep, type SweepOptions } from "./sweep.ts";
export type { Page, TailSink } from "./tail.ts";
export type { LaneTimes, TextStream } from "./text-lane.ts";
