export { replay, type ReplayInput, type ReplayOutput } from "./replay/agent.ts";
export {
  repoReport,
  type RepoReportInput,
  type RepoReportOptions,
  type RepoReportOutput,
} from "./repo-report/agent.ts";
export { type AllowedPath, openRoots, type Roots } from "./roots.ts";
