/**
 * Executes calls of client-side tools: claim, run, report, each once.
 *
 *   free ─claim→ claiming ─ours→ running ─outcome→ reporting ─stored→ gone
 *                   │ another's     │ closed · another's     │ stale → claiming
 *                   └→ gone         └→ gone                  └ resolved → gone
 *
 * Tabs and devices that know the same tool race for the claim, and one gets it. What a reload cuts off is
 * found in the journal: an outcome that was not reported yet is, and a call that was begun is not begun
 * again, unless its tool says that it may be.
 */
import type { Clock } from "../clock.ts";
import { CommandRejected } from "../errors.ts";
import type { RunSteering } from "../follow/steering.ts";
import { newId } from "../new-id.ts";
import type { Journal, Page } from "./journal.ts";
import { failure, type Outcome, outcomeOf } from "./outcome.ts";
import type { ClientTool, ClientTools } from "./tool.ts";

/** What has to be known of a call. */
export interface OpenCall {
  readonly tool_call_id: string;
  readonly name: string;
  readonly args: unknown;
}

interface Execution {
  readonly run: RunSteering;
  readonly call: OpenCall;
  readonly tool: ClientTool;
  /** Nobody wants the outcome any more. */
  readonly abort: AbortController;
}

const LEASE_MS = 30_000;
/** A report that came too late is made again under a new claim; a link that bad for that often is beyond help. */
const MAX_REPORTS = 3;

export class Executions {
  readonly #tools = new Map<string, ClientTool>();
  readonly #journal: Journal;
  readonly #clock: Clock;
  /** One for a call, however many handles see it. Left when the call has its outcome. */
  readonly #executions = new Map<string, Execution>();

  constructor(journal: Journal, clock: Clock) {
    this.#journal = journal;
    this.#clock = clock;
  }

  register(tools: ClientTools): void {
    for (const [name, tool] of Object.entries(tools)) this.#tools.set(name, tool);
  }

  get tools(): ClientTools {
    return Object.fromEntries(this.#tools);
  }

  /** A call that nobody has claimed. */
  free(run: RunSteering, call: OpenCall): void {
    const tool = this.#tools.get(call.name);
    const key = keyOf(run.run_id, call.tool_call_id);
    if (tool === undefined || this.#executions.has(key)) return;
    const execution = { run, call, tool, abort: new AbortController() };
    this.#executions.set(key, execution);
    this.#execute(execution)
      // Refused, or following has ended: somebody else's, or nobody's, now.
      .catch(() => execution.abort.abort())
      .finally(() => this.#executions.delete(key));
  }

  /** A call has its outcome, whoever brought it. */
  closed(runId: string, callId: string): void {
    this.#executions.get(keyOf(runId, callId))?.abort.abort();
  }

  /** @throws what keeps the call from being this device's */
  async #execute(execution: Execution): Promise<void> {
    const { run, call } = execution;
    const page = await this.#journal.read(run.run_id, call.tool_call_id);
    const claimId = page?.claim_id ?? newId("clm");
    await this.#claim(execution, claimId);
    const stopRenewing = this.#renew(execution, claimId);
    try {
      const outcome = await this.#outcome(execution, claimId, page);
      if (!execution.abort.signal.aborted) await this.#report(execution, claimId, outcome);
    } finally {
      stopRenewing();
      // With its outcome in the log, or closed by the run, the call is never free again.
      await this.#journal.remove(run.run_id, call.tool_call_id);
    }
  }

  #claim({ run, call, tool }: Execution, claimId: string): Promise<void> {
    return run.claimCall(call.tool_call_id, claimId, { leaseMs: tool.leaseMs ?? LEASE_MS });
  }

  async #outcome(execution: Execution, claim_id: string, page: Page | undefined): Promise<Outcome> {
    const { run, call, tool, abort } = execution;
    const { session_id, run_id } = run;
    const { tool_call_id } = call;
    if (page?.is === "done") return page.outcome;
    if (page?.is === "begun" && tool.idempotent !== true) {
      const text = "the device that executed it was restarted meanwhile";
      return failure("outcome_unknown", text);
    }
    await this.#journal.write(run_id, tool_call_id, { is: "begun", claim_id });
    const context = { session_id, run_id, tool_call_id, signal: abort.signal };
    const outcome = await outcomeOf(tool, call.args, context);
    await this.#journal.write(run_id, tool_call_id, { is: "done", claim_id, outcome });
    return outcome;
  }

  async #report(execution: Execution, claimId: string, outcome: Outcome): Promise<void> {
    const { run, call } = execution;
    for (let reports = 1; ; reports += 1) {
      try {
        return await run.reportCall(call.tool_call_id, claimId, outcome);
      } catch (error) {
        if (!(error instanceof CommandRejected) || reports >= MAX_REPORTS) throw error;
        if (error.code === "too_large") {
          outcome = failure("result_too_large", error.message);
        } else if (error.code === "stale") {
          await this.#claim(execution, claimId);
        } else throw error;
      }
    }
  }

  /** One renewal at a time, so that none pile up while the link is away. */
  #renew(execution: Execution, claimId: string): () => void {
    let isOver = false;
    let cancel: () => void = () => undefined;
    const again = (): void => {
      if (isOver) return;
      cancel = this.#clock.after((execution.tool.leaseMs ?? LEASE_MS) / 3, () => {
        this.#claim(execution, claimId).then(again, () => {
          if (!isOver) execution.abort.abort();
        });
      });
    };
    again();
    return () => {
      isOver = true;
      cancel();
    };
  }
}

/** A space is in no id. */
function keyOf(runId: string, callId: string): string {
  return `${runId} ${callId}`;
}
