export {
  type Agent,
  type AgentDefinition,
  type ApprovalDecision,
  type ApprovalRequest,
  type AvailableTool,
  defineAgent,
  type Inbox,
  type InputRequest,
  type Instruction,
  type Message,
  type MessageOptions,
  type PastRun,
  type RecordedToolCall,
  type RunContext,
  type Scope,
  type Session,
  type StepOptions,
  type StepScope,
  type Tool,
  type ToolCall,
  type ToolCallOptions,
  type ToolContext,
  type ToolOutcome,
  type Tools,
} from "./agent.ts";
export { defineTool, type ToolDefinition } from "./requests/define-tool.ts";
export { AgentError, type AgentErrorOptions, RunStopped, type StopReason } from "./failure.ts";
export type { Log } from "./log.ts";
export { createWorker, type Worker, type WorkerEvents, type WorkerOptions } from "./worker.ts";
