export {
  type CommandOptions,
  type CommandWithoutId,
  Client,
  type FollowOptions,
  type StartOptions,
  createClient,
} from "./client.ts";
export type { Clock } from "./clock.ts";
export type { Answer } from "./commands/outbox.ts";
export type { ClosedFor, ConnectionState, Failure } from "./connection/lifecycle.ts";
export type { WebSocketConstructor, WebSocketLike } from "./connection/socket.ts";
export { ClientClosed, CommandRejected, FollowClosed, FollowFailed, OutboxFull } from "./errors.ts";
export type { FeedLimits } from "./follow/feed.ts";
export { RunHandle, SessionHandle, type RunOutcome, type TerminalEvent } from "./follow/handle.ts";
export type { Closed, FollowItem, Gap, RunSnapshot } from "./follow/item.ts";
export type { SessionState } from "./follow/state.ts";
export {
  type ContinueOptions,
  type InterruptOptions,
  type ReasonOptions,
  type RetryOptions,
  RunSteering,
} from "./follow/steering.ts";
export type { DeliveredEvent } from "./frame.ts";
export type { ClientOptions } from "./options.ts";
export { newId } from "./new-id.ts";
export type { ClientStorage } from "./tools/journal.ts";
export type { Outcome } from "./tools/outcome.ts";
export {
  type ClientTool,
  type ClientTools,
  type ToolCallContext,
  ToolError,
} from "./tools/tool.ts";
