/** What the agent waits for, as `run.status` tells it: on change only, in the order of the agent's calls. */
import type { EventPayload, RunState } from "@throughline/protocol";
import { isSettled } from "./requests/call-verdicts.ts";
import type { Wait } from "./scope-run.ts";

type Status = EventPayload<"run.status">["status"];

export class Activity {
  readonly #tell: (status: Status) => void;
  readonly #waits: Record<Wait, number> = { approval: 0, input: 0, tools: 0 };
  #told: Status;

  /**
   * `state`: the log's. What another worker's execution waited for, and what is still open, this one will
   * come to wait for too; else the agent is at work again, and that is told.
   */
  constructor(state: RunState, tell: (status: Status) => void) {
    const { status } = state;
    this.#tell = tell;
    this.#told = isWait(status) ? status : "running";
    if (!isOpen(state)) this.#look();
  }

  /** What the log's status named may be settled before the agent comes to wait for it: to be called then. */
  settled(): void {
    this.#look();
  }

  /** The agent waits until the result is called. */
  begin(wait: Wait): () => void {
    this.#waits[wait] += 1;
    this.#look();
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#waits[wait] -= 1;
      this.#look();
    };
  }

  #look(): void {
    const status = statusOf(this.#waits);
    if (status === this.#told) return;
    this.#told = status;
    this.#tell(status);
  }
}

type Waiting = Extract<Status, `waiting_${string}`>;

function isWait(status: RunState["status"]): status is Waiting {
  return status.startsWith("waiting_");
}

/** Is there still something of the kind that the run's status names? */
export function isOpen({ status, approvals, inputs, tool_calls }: RunState): boolean {
  switch (status) {
    case "waiting_approval":
      return approvals.some((approval) => approval.status === "open");
    case "waiting_input":
      return inputs.some((input) => input.status === "open");
    case "waiting_tools":
      return tool_calls.some((call) => call.executor === "client" && !isSettled(call));
    default:
      return false;
  }
}

/** A person's decision is named before an input, and both before tools: those are what somebody must act on. */
function statusOf(waits: Readonly<Record<Wait, number>>): Status {
  if (waits.approval > 0) return "waiting_approval";
  if (waits.input > 0) return "waiting_input";
  return waits.tools > 0 ? "waiting_tools" : "running";
}
