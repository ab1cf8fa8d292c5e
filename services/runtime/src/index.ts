export { llm, type LlmOptions, type LlmOutput } from "./llm/agent.ts";
export type { LlmInput } from "./llm/input.ts";
export { replay, type ReplayInput, type ReplayOutput } from "./replay/agent.ts";
export {
  repoReport,
  type RepoReportInput,
  type RepoReportOptions,
  type RepoReportOutput,
} from "./repo-report/agent.ts";
export { type AllowedPath, openRoots, type Roots } from "./roots.ts";
