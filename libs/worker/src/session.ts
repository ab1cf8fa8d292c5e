/** What an agent sees of its session: earlier runs, and the options that hold in it. */
import type { RunState } from "@throughline/protocol";
import type { Session } from "./agent.ts";
import type { ScopeRun } from "./scope-run.ts";

export function sessionOf(run: ScopeRun, state: RunState): Session {
  return {
    id: run.ref.session,
    options: state.options,
    history: async () => [],
  };
}
