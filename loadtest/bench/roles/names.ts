/** What several processes call by the same name. */

/** An agent that stays until it is cancelled: what comes of a command is the worker's doing, not the agent's. */
export const IDLE = "bench-idle";
/** An agent that writes a word of one message every 10 ms. */
export const TICKING = "bench-ticking";

export interface BareSubjects {
  /** Answered by the worker's process. */
  readonly request: string;
  /** Stored by a stream of its own, on file, one replica. */
  readonly stored: string;
}
