export {
  type Agent,
  type AgentDefinition,
  defineAgent,
  type Message,
  type MessageOptions,
  type RecordedToolCall,
  type RunContext,
  type Scope,
  type StepScope,
} from "./agent.ts";
export { AgentError, type AgentErrorOptions, RunStopped, type StopReason } from "./failure.ts";
export type { Log } from "./log.ts";
export { createWorker, type Worker, type WorkerEvents, type WorkerOptions } from "./worker.ts";
