/*
 * What each event type is, apart from its payload. The compiler holds this table against the schemas:
 * a type that is missing here, or is not there, does not build.
 */
import type { DurableType, EphemeralType, EventType } from "./events/catalogue.ts";

interface Kind {
  /** The run's last event. */
  readonly terminal?: true;
  /** Voids the deltas that were sent before it. */
  readonly barrier?: true;
  /** What it records stays done whoever carries the run on. Attempts without any such event are idle. */
  readonly progress?: true;
}

const DURABLE = {
  "run.queued": {},
  "run.started": {},
  "run.resumed": { barrier: true },
  "run.status": {},
  "run.interrupted": { barrier: true },
  "run.completed": { terminal: true, barrier: true },
  "run.failed": { terminal: true, barrier: true },
  "run.cancelled": { terminal: true, barrier: true },
  "step.started": {},
  "step.completed": { progress: true },
  "step.failed": { progress: true },
  "step.superseded": { barrier: true },
  "message.started": {},
  // Not progress: a model call that kills its worker each time would write chunks each time.
  "model.chunk": {},
  "message.completed": { progress: true },
  "tool_call.created": { progress: true },
  // Not progress: so would an idempotent tool that kills its worker be `running` each time.
  "tool_call.status": {},
  "tool_call.completed": { progress: true },
  "tool_call.failed": { progress: true },
  "approval.requested": { progress: true },
  "approval.resolved": { progress: true },
  "input.requested": { progress: true },
  "input.received": { progress: true },
  "artifact.ready": { progress: true },
  "usage.updated": {},
  "state.updated": { progress: true },
  "memory.updated": { progress: true },
  custom: { progress: true },
  "command.rejected": {},
} as const satisfies Record<DurableType, Kind>;

const EPHEMERAL = {
  "model.delta": {},
  "tool_call.progress": {},
  log: {},
  presence: {},
} as const satisfies Record<EphemeralType, Kind>;

type DurableWith<P extends keyof Kind> = {
  [T in keyof typeof DURABLE]: (typeof DURABLE)[T] extends Record<P, true> ? T : never;
}[keyof typeof DURABLE];

export type TerminalType = DurableWith<"terminal">;
export type BarrierType = DurableWith<"barrier">;

const kindOf = (type: string): Kind | undefined =>
  isDurableType(type) ? DURABLE[type] : undefined;

const durableTypes: readonly string[] = Object.keys(DURABLE);
const ephemeralTypes: readonly string[] = Object.keys(EPHEMERAL);

export const DURABLE_TYPES: readonly DurableType[] = durableTypes.filter(isDurableType);
export const EPHEMERAL_TYPES: readonly EphemeralType[] = ephemeralTypes.filter(isEphemeralType);
export const TERMINAL_TYPES: readonly TerminalType[] = DURABLE_TYPES.filter(isTerminal);
export const BARRIER_TYPES: readonly BarrierType[] = DURABLE_TYPES.filter(isBarrier);

export function isDurableType(type: string): type is DurableType {
  return Object.hasOwn(DURABLE, type);
}

export function isEphemeralType(type: string): type is EphemeralType {
  return Object.hasOwn(EPHEMERAL, type);
}

export function isEventType(type: string): type is EventType {
  return isDurableType(type) || isEphemeralType(type);
}

/** The run's one last event. */
export function isTerminal(type: string): type is TerminalType {
  return kindOf(type)?.terminal === true;
}

/** An event after which deltas sent before it no longer count. */
export function isBarrier(type: string): type is BarrierType {
  return kindOf(type)?.barrier === true;
}

/** An event that brings the run further, in whichever worker's hands. */
export function isProgress(type: string): boolean {
  return kindOf(type)?.progress === true;
}
