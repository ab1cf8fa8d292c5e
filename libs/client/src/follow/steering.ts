/** Commands to one run, each resolved when what it did has been seen in the run's events. */
import type { CommandPayload, ControlFrameOf, RunState } from "@throughline/protocol";
import type { CommandOptions, CommandWithoutId } from "../client.ts";
import { type Effect, type Effects, hasApplied } from "../commands/effects.ts";
import { newId } from "../new-id.ts";
import type { Outcome } from "../tools/outcome.ts";
import type { RunHandle } from "./handle.ts";

type Accepted = ControlFrameOf<"command.accepted">;
/** `run.cancel` stands beside the others for being able to name its run by the start's id as well. */
type RunCommand =
  | Extract<CommandWithoutId, { session_id: string; run_id: string }>
  | Extract<CommandWithoutId, { type: "run.cancel" }>;

export interface SteeringPort {
  readonly effects: Effects;
  /** Of the run, as far as it has been seen. */
  state(): RunState | undefined;
  command(command: CommandWithoutId, options: CommandOptions): Promise<Accepted>;
  follow(run: string): RunHandle;
}

/** Of what is answered: why, to be shown to others. */
export interface ReasonOptions extends CommandOptions {
  reason?: string;
}

export interface InterruptOptions extends ReasonOptions {
  /** Whether the agent keeps what the stopped step had come to (yes). */
  preserveContext?: boolean;
}

export interface ContinueOptions extends CommandOptions {
  attachments?: CommandPayload<"run.continue">["attachments"];
  options?: CommandPayload<"run.continue">["options"];
}

export interface RetryOptions extends CommandOptions {
  /** Id of the first step that is done again; without it, the first that was not completed. */
  fromStep?: string;
}

/**
 * What can be done to a run. Every method resolves when the run's events show its effect, and throws
 *
 * - `CommandRejected` with the code: refused by the server (`not_found`, `run_ended` …) or judged by the
 *   run (`already_resolved` with the decision as `current`, `stale`, `not_allowed` …);
 * - `ClientClosed`, `OutboxFull` as {@link Client.command} does; `FollowClosed` and `FollowFailed` where
 *   following ends before.
 *
 * While an iteration is so far behind that the flow is stopped for it, methods resolve when the server
 * has stored the command: a loop that awaits one in its body does not wait for itself.
 */
export class RunSteering {
  readonly session_id: string;
  readonly run_id: string;
  readonly #port: SteeringPort;

  constructor(session: string, run: string, port: SteeringPort) {
    this.session_id = session;
    this.run_id = run;
    this.#port = port;
  }

  /**
   * Allows what an approval asks for, as it was asked: bound to the request and to its arguments where
   * both have been seen.
   */
  approve(approvalId: string, options: ReasonOptions = {}): Promise<void> {
    return this.#decide(approvalId, "allow", options);
  }

  deny(approvalId: string, options: ReasonOptions = {}): Promise<void> {
    return this.#decide(approvalId, "deny", options);
  }

  /** Answers an input request. `content`: any JSON value that fits the request's schema. */
  async respond(
    inputId: string,
    content: CommandPayload<"input.respond">["content"],
    options: CommandOptions = {},
  ): Promise<void> {
    const payload = { input_id: inputId, content };
    await this.#send({ type: "input.respond", ...this.#ref, payload }, options);
  }

  /** Stops the current step; the run is paused until `resume` or `continue`. */
  async interrupt(options: InterruptOptions = {}): Promise<void> {
    const { reason, preserveContext } = options;
    const payload = {
      ...(reason === undefined ? {} : { reason }),
      ...(preserveContext === undefined ? {} : { preserve_context: preserveContext }),
    };
    await this.#send({ type: "run.interrupt", ...this.#ref, payload }, options);
  }

  /** Goes on after an interrupt. */
  async resume(options: CommandOptions = {}): Promise<void> {
    await this.#send({ type: "run.resume", ...this.#ref, payload: {} }, options);
  }

  /** Gives a further instruction. A busy run sees it at its next look into its inbox. */
  async continue(
    content: CommandPayload<"run.continue">["content"],
    options: ContinueOptions = {},
  ): Promise<void> {
    const { attachments, options: settings } = options;
    const payload = {
      content,
      ...(attachments === undefined ? {} : { attachments }),
      ...(settings === undefined ? {} : { options: settings }),
    };
    await this.#send({ type: "run.continue", ...this.#ref, payload }, options);
  }

  /**
   * Claims a call of a client-side tool, so that nobody else executes it; with the same `claimId` again,
   * renews the claim. Tools given to `createClient` are claimed and reported by the client itself.
   */
  async claimCall(
    callId: string,
    claimId: string,
    options: CommandOptions & { leaseMs?: number } = {},
  ): Promise<void> {
    const lease = options.leaseMs === undefined ? {} : { lease_ms: options.leaseMs };
    const payload = { tool_call_id: callId, claim_id: claimId, ...lease };
    await this.#send({ type: "tool_call.claim", ...this.#ref, payload }, options);
  }

  /** Reports what came of a call. `stale`: the claim has lapsed. */
  async reportCall(
    callId: string,
    claimId: string,
    outcome: Outcome,
    options: CommandOptions = {},
  ): Promise<void> {
    const payload = { tool_call_id: callId, claim_id: claimId, ...outcome };
    await this.#send({ type: "tool_result.report", ...this.#ref, payload }, options);
  }

  /** Does a failed step again that the run waits with. */
  async retryStep(stepId: string, options: CommandOptions = {}): Promise<void> {
    const payload = { step_id: stepId };
    await this.#send({ type: "step.retry", ...this.#ref, payload }, options);
  }

  /**
   * Stops the run for good. Resolves when it has ended, whichever way: it may have completed before the
   * command came.
   */
  async cancel(reason?: string, options: CommandOptions = {}): Promise<void> {
    const payload = reason === undefined ? {} : { reason };
    await this.#send({ type: "run.cancel", ...this.#ref, payload }, options);
  }

  /** Of a finished run: begins a new one that keeps its completed steps, and follows that. */
  async retry(options: RetryOptions = {}): Promise<RunHandle> {
    const { fromStep } = options;
    const payload = fromStep === undefined ? {} : { from_step: fromStep };
    const command = { type: "run.retry", ...this.#ref, payload } as const;
    const { run_id: run } = await this.#port.command(command, options);
    if (run === undefined)
      throw new TypeError("the server accepted run.retry without naming the run");
    return this.#port.follow(run);
  }

  get #ref(): { session_id: string; run_id: string } {
    return { session_id: this.session_id, run_id: this.run_id };
  }

  async #decide(id: string, decision: "allow" | "deny", options: ReasonOptions): Promise<void> {
    const asked = this.#port.state()?.approvals.find(({ approval_id }) => approval_id === id);
    const { reason } = options;
    const payload = {
      approval_id: id,
      decision,
      ...(asked === undefined ? {} : { args_hash: asked.args_hash }),
      ...(reason === undefined ? {} : { reason }),
    };
    const bound = asked === undefined ? {} : { reply_to: asked.event_id };
    await this.#send({ type: "approval.respond", ...this.#ref, ...bound, payload }, options);
  }

  async #send(command: RunCommand, options: CommandOptions): Promise<Effect> {
    const { effects } = this.#port;
    const id = options.id ?? newId("cmd");
    const expected = effects.expect(id, this.run_id, command.type === "run.cancel");
    try {
      const { duplicate } = await this.#port.command(command, { ...options, id });
      // Of another life of this program: its effect may lie before the handle's first event.
      const state = duplicate ? this.#port.state() : undefined;
      if (state !== undefined && hasApplied(state, id)) return undefined;
      return await orAborted(expected.seen, options.signal);
    } finally {
      expected.forget();
    }
  }
}

async function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  let stop: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    const abort = (): void => {
      reject(signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason)));
    };
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    stop = () => signal.removeEventListener("abort", abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    stop();
  }
}
