/*
 * Codes that Throughline itself puts into `run.failed`, `step.failed` and `tool_call.failed`. Agents
 * add their own: a code is any short text.
 */

export interface FailureRow {
  /** Goes into the event's `retryable`: would the same again have a chance? */
  readonly retryable: boolean;
  readonly summary: string;
}

export const FAILURE_CODES = {
  agent_error: { retryable: true, summary: "The agent threw." },
  agent_unavailable: {
    retryable: true,
    summary: "No worker offered the agent for as long as a run may wait in the queue.",
  },
  invalid_input: { retryable: false, summary: "The agent does not take this input." },
  deadline: { retryable: false, summary: "The run was not finished by its deadline." },
  worker_lost: { retryable: true, summary: "The worker died and the run could not be taken over." },
  too_many_attempts: {
    retryable: false,
    summary: "Several workers in a row died on it without getting further.",
  },
  outcome_unknown: {
    retryable: false,
    summary: "A worker died while the tool ran; whether it took effect is not known.",
  },
  unknown_tool: {
    retryable: false,
    summary: "Neither the worker nor a client of the session has a tool of this name.",
  },
  tool_error: { retryable: false, summary: "The tool could not do it." },
  tool_timeout: { retryable: true, summary: "The tool gave no outcome in its time." },
  denied: { retryable: false, summary: "The approval that it needed was denied." },
  approval_expired: {
    retryable: true,
    summary: "Nobody decided about the approval that it needed, and it is not granted by default.",
  },
  invalid_event: { retryable: false, summary: "The agent emitted what is no event." },
  invalid_output: { retryable: false, summary: "The output is not JSON." },
  event_too_large: {
    retryable: false,
    summary: "The agent emitted more than an event may hold.",
  },
  output_too_large: { retryable: false, summary: "The output is larger than an event may be." },
  object_gone: {
    retryable: false,
    summary: "A value names an object of the session that is not stored, or is not what it says.",
  },
  overflow: { retryable: false, summary: "The agent emits faster than the log takes it." },
  interrupted: { retryable: true, summary: "Stopped by an interrupt." },
  cancelled: { retryable: false, summary: "Stopped by the run's cancellation." },
} as const satisfies Record<string, FailureRow>;

export type FailureCode = keyof typeof FAILURE_CODES;
