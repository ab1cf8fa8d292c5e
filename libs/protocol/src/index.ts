/*
 * The protocol without its schemas: types, tables and pure functions. Nothing here may import zod at
 * run time, since this is what browsers load; the schemas are in `@throughline/protocol/schemas`.
 */
export {
  CLOSE_CODES,
  closeAdvice,
  type CloseCode,
  type CloseCodeName,
  type Reconnect,
} from "./close-codes.ts";
export { closingEvents, type Closing } from "./closing.ts";
export { COMMAND_KINDS, isRunCommandType, type RunCommandType } from "./command-kinds.ts";
export type { Command, CommandOf, CommandPayload, CommandType } from "./commands/catalogue.ts";
export type { Decision, ToolReport } from "./commands/response.ts";
export type {
  ControlFrame,
  ControlFrameOf,
  ControlType,
  ServerFrame,
} from "./control/catalogue.ts";
export { cursorTag, formatCursor, parseCursor, type Cursor } from "./cursor.ts";
export { ERROR_CODES, isErrorCode, type ErrorCode, type ErrorRow } from "./error-codes.ts";
export {
  BARRIER_TYPES,
  DURABLE_TYPES,
  EPHEMERAL_TYPES,
  TERMINAL_TYPES,
  isBarrier,
  isDurableType,
  isEphemeralType,
  isEventType,
  isTerminal,
  type BarrierType,
  type TerminalType,
} from "./event-kinds.ts";
export type {
  DurableEvent,
  DurableType,
  EphemeralEvent,
  EphemeralType,
  EventOf,
  EventPayload,
  EventType,
  NewEvent,
  RunEvent,
  UnknownEvent,
} from "./events/catalogue.ts";
export { FAILURE_CODES, type FailureCode, type FailureRow } from "./failure-codes.ts";
export { readFrame, type IncomingFrame } from "./frame.ts";
export { ID_PATTERN, eventId, isId } from "./ids.ts";
export {
  FRAME_RATE,
  HEARTBEAT_INTERVAL_MS,
  MAX_BATCH_BYTES,
  MAX_BATCH_EVENTS,
  MAX_DEPTH,
  MAX_EVENT_BYTES,
  MAX_FRAME_BYTES,
  MAX_INLINE_BYTES,
  MAX_LEASE_MS,
  MAX_SUBSCRIPTIONS,
  MAX_WINDOW,
  MIN_LEASE_MS,
} from "./limits.ts";
export { mergePatch } from "./merge-patch.ts";
export { ForeignEventError, HoleError, reduce } from "./reduce.ts";
export {
  initialRunState,
  isApplied,
  messageText,
  type ApprovalState,
  type ArtifactState,
  type InboxItem,
  type InputState,
  type MessageState,
  type RunState,
  type RunStatus,
  type StepState,
  type ToolCallState,
} from "./state/run-state.ts";
export { TRANSITIONS, commandVerdict, type Effect, type Transition } from "./transitions.ts";
export { PROTOCOL_VERSION, SUBPROTOCOL } from "./version.ts";
