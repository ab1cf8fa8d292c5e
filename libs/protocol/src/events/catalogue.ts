/* All events of the wire. */
import { z } from "zod";
import { approvalRequested, approvalResolved, inputReceived, inputRequested } from "./asks.ts";
import { messageCompleted, messageStarted, modelChunk, modelDelta } from "./message.ts";
import { log, presence } from "./notices.ts";
import { artifactReady, custom, memoryUpdated, stateUpdated, usageUpdated } from "./results.ts";
import {
  runCancelled,
  runCompleted,
  runFailed,
  runInterrupted,
  runQueued,
  runResumed,
  runStarted,
  runStatus,
} from "./run.ts";
import { stepCompleted, stepFailed, stepStarted, stepSuperseded } from "./step.ts";
import {
  toolCallCompleted,
  toolCallCreated,
  toolCallFailed,
  toolCallProgress,
  toolCallStatus,
} from "./tool-call.ts";
import { commandRejectedEvent } from "./verdict.ts";

export const durableEventSchema = z.discriminatedUnion("type", [
  runQueued,
  runStarted,
  runResumed,
  runStatus,
  runInterrupted,
  runCompleted,
  runFailed,
  runCancelled,
  stepStarted,
  stepCompleted,
  stepFailed,
  stepSuperseded,
  messageStarted,
  modelChunk,
  messageCompleted,
  toolCallCreated,
  toolCallStatus,
  toolCallCompleted,
  toolCallFailed,
  approvalRequested,
  approvalResolved,
  inputRequested,
  inputReceived,
  artifactReady,
  usageUpdated,
  stateUpdated,
  memoryUpdated,
  custom,
  commandRejectedEvent,
]);

export const ephemeralEventSchema = z.discriminatedUnion("type", [
  modelDelta,
  toolCallProgress,
  log,
  presence,
]);

export const eventSchema = z.discriminatedUnion("type", [durableEventSchema, ephemeralEventSchema]);

type AnyDurable = z.infer<typeof durableEventSchema>;
type AnyEphemeral = z.infer<typeof ephemeralEventSchema>;

export type DurableType = AnyDurable["type"];
export type EphemeralType = AnyEphemeral["type"];
export type EventType = DurableType | EphemeralType;

/** A stored event; `DurableEvent<"run.queued">` is one kind of it. */
export type DurableEvent<T extends DurableType = DurableType> = Extract<AnyDurable, { type: T }>;
export type EphemeralEvent<T extends EphemeralType = EphemeralType> = Extract<
  AnyEphemeral,
  { type: T }
>;
export type RunEvent = DurableEvent | EphemeralEvent;
export type EventOf<T extends EventType> = Extract<RunEvent, { type: T }>;
export type EventPayload<T extends EventType> = EventOf<T>["payload"];

/** What a run's writer is given; it adds `seq`, `event_id`, `ts` and the ids of run and session. */
export type NewEvent<T extends DurableType = DurableType> = {
  [K in T]: Pick<DurableEvent<K>, "type" | "payload"> &
    Partial<Pick<DurableEvent<K>, "step_id" | "reply_to" | "reply_by" | "key">>;
}[T];

/** An event of a type that this version does not know. It has a place in the order, and no more. */
export interface UnknownEvent {
  readonly type: string;
  readonly session_id: string;
  readonly run_id?: string | undefined;
  readonly seq?: number | undefined;
  readonly ts?: number | undefined;
  readonly reply_to?: string | undefined;
  readonly reply_by?: string | undefined;
  readonly payload: unknown;
}
