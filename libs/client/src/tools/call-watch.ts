/** Finds the calls in what a handle sees. */
import type { DurableEvent, RunState, ToolCallState } from "@throughline/protocol";
import type { RunSteering } from "../follow/steering.ts";
import type { Executions } from "./executions.ts";

export class CallWatch {
  readonly #executions: Executions;
  readonly #run: (runId: string) => RunSteering;
  readonly #states: () => readonly RunState[];
  /** In a replay a call looks open until its outcome comes by. */
  #isLevel = false;

  /** @param states of all runs that the handle knows */
  constructor(
    executions: Executions,
    run: (runId: string) => RunSteering,
    states: () => readonly RunState[],
  ) {
    this.#executions = executions;
    this.#run = run;
    this.#states = states;
  }

  replaying(): void {
    this.#isLevel = false;
  }

  /** What comes from now on is new. What is still open is looked at now. */
  level(): void {
    this.#isLevel = true;
    for (const state of this.#states()) this.state(state);
  }

  /** The state of a run as a whole. */
  state({ run_id, tool_calls }: RunState): void {
    if (!this.#isLevel || run_id === undefined) return;
    for (const call of tool_calls) this.#look(run_id, call);
  }

  /** After the state has taken it over. */
  event(event: DurableEvent): void {
    switch (event.type) {
      case "tool_call.created":
      case "tool_call.status": {
        if (!this.#isLevel) return;
        const { tool_call_id: id } = event.payload;
        const state = this.#states().find(({ run_id }) => run_id === event.run_id);
        const call = state?.tool_calls.findLast(({ tool_call_id }) => tool_call_id === id);
        if (call !== undefined) this.#look(event.run_id, call);
        return;
      }
      case "tool_call.completed":
      case "tool_call.failed":
        return this.#executions.closed(event.run_id, event.payload.tool_call_id);
      default:
    }
  }

  #look(runId: string, call: ToolCallState): void {
    if (call.executor === "client" && call.status === "pending")
      this.#executions.free(this.#run(runId), call);
  }
}
