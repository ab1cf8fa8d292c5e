import type {
  CommandLog,
  EventLog,
  RunEntry,
  SessionRecord,
  SessionRef,
} from "@throughline/broker";
import type { Log } from "../log.ts";
import type { RunStates } from "../runs/run-states.ts";
import type { SessionRecords } from "./sessions.ts";

/** Where session records are made. */
export interface SessionCreator {
  create(record: SessionRecord): Promise<{
    readonly outcome: "created" | "exists";
    readonly record: SessionRecord;
  }>;
}

/** What carrying out commands needs of the node. All calls may reject as the broker does. */
export interface CommandServices {
  readonly events: Pick<EventLog, "start" | "last">;
  readonly commands: Pick<CommandLog, "publish" | "find">;
  readonly sessions: SessionRecords;
  readonly creator: SessionCreator;
  /** Which sessions a user has a part in. */
  readonly memberships: Memberships;
  readonly runIndex: { put(entry: RunEntry): Promise<void> };
  /** What runs have come to. */
  readonly states: Pick<RunStates, "current">;
  /** A value over the inline limit goes to the object store, and its reference is what is stored. */
  readonly offload: (ref: SessionRef, value: unknown) => Promise<unknown>;
  readonly log: Log;
  /** ms since the epoch. */
  readonly wallClock: () => number;
  readonly wait: (ms: number) => Promise<void>;
  /** From a run's start to its deadline. */
  readonly deadlineMs: number;
}

/** Notes that users have a part in a session, for their lists. */
export interface Memberships {
  add(record: SessionRecord, users: readonly string[]): Promise<void>;
  remove(record: SessionRecord, user: string): Promise<void>;
}
