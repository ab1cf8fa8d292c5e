/** What the agent waits for, as `run.status` tells it: on change only, in the order of the agent's calls. */
import type { EventPayload } from "@throughline/protocol";
import type { Wait } from "./scope-run.ts";

type Status = EventPayload<"run.status">["status"];

export class Activity {
  readonly #tell: (status: Status) => void;
  readonly #waits: Record<Wait, number> = { approval: 0, input: 0, tools: 0 };
  #told: Status;

  /** `told`: what the run's log says now. */
  constructor(told: Status, tell: (status: Status) => void) {
    this.#told = told;
    this.#tell = tell;
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

/** A person's decision is named before an input, and both before tools: those are what somebody must act on. */
function statusOf(waits: Readonly<Record<Wait, number>>): Status {
  if (waits.approval > 0) return "waiting_approval";
  if (waits.input > 0) return "waiting_input";
  return waits.tools > 0 ? "waiting_tools" : "running";
}
