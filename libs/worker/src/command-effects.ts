/** What a stored command does to a run. Each gets a durable answer: its effect, or `command.rejected`. */
import type { StoredCommand } from "@throughline/broker";
import {
  type Command,
  type CommandOf,
  commandVerdict,
  isApplied,
  isId,
  isRunCommandType,
  type NewEvent,
  type RunState,
} from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import { refused, rejected, replyTo, type Sender, userOf } from "./answers.ts";
import type { CancelRequest } from "./ending.ts";
import type { InterruptRequest } from "./interruption.ts";
import { type InputCheck, judge } from "./requests/verdicts.ts";
import { judgeStepRetry } from "./step-retry.ts";

/** What is to be done about one command. */
export type Reaction =
  /** Answered before (a duplicate past the server's window), or so broken that nobody waits for an answer. */
  | { readonly kind: "skip"; readonly why: string }
  | { readonly kind: "answer"; readonly events: readonly NewEvent[] }
  /** The same, and the agent of an interrupted run is executed again. */
  | { readonly kind: "resume"; readonly events: readonly NewEvent[] }
  | { readonly kind: "interrupt"; readonly request: InterruptRequest }
  | { readonly kind: "cancel"; readonly command: CancelRequest };

/** What of a run is not in its state. */
export interface Situation {
  /**
   * Of an id that was used before: whether that was with another content. The edge knows ids for two minutes;
   * later it stores what comes as a new command.
   */
  readonly contradicts: boolean;
  readonly attempt: number;
  /** Id of this worker process. */
  readonly worker: string;
  /** Has the agent's end come already? What it returned stands: there is nothing left to interrupt, and nobody to instruct. */
  readonly over: boolean;
  /** The agent waits for its inbox. */
  readonly inboxAwaited: boolean;
  readonly checkInput: InputCheck;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** The input that the command answers, if it answers one. */
export function inputAnswered(stored: StoredCommand): string | undefined {
  const parsed = parseCommand(stored.command);
  if (!parsed.ok || parsed.command.type !== "input.respond") return undefined;
  return parsed.command.payload.input_id;
}

/** Is it meant to stop the agent? Then it waits for nothing that the agent may still do. */
export function stopsAgent(stored: StoredCommand): boolean {
  const parsed = parseCommand(stored.command);
  return parsed.ok && ["run.cancel", "run.interrupt"].includes(parsed.command.type);
}

/** Pure. `state`: as of everything that earlier commands have stored. */
export function reactTo(stored: StoredCommand, state: RunState, situation: Situation): Reaction {
  const user = userOf(stored);
  const parsed = parseCommand(stored.command);
  if (!parsed.ok) {
    const id = parsed.id !== undefined && isId(parsed.id) ? parsed.id : undefined;
    // Whoever wrote it past the edge has no id to be answered by.
    if (id === undefined) return { kind: "skip", why: `not a command: ${parsed.message}` };
    if (isApplied(state, id, user)) return again({ id, user }, situation);
    return answer(rejected({ id, user }, parsed.code, parsed.message));
  }
  const { command } = parsed;
  const sender = { id: command.id, user };
  if (isApplied(state, command.id, user)) return again(sender, situation);
  if (!isRunCommandType(command.type)) {
    return answer(rejected(sender, "invalid", `${command.type} is not addressed to a run`));
  }
  const verdict = commandVerdict(state.status, command.type);
  if (!verdict.ok) return answer(refused(sender, verdict.code, { status: state.status }));
  return effectOf(command, stored, { state, situation, sender });
}

/** The command's id, where another one had it before that has its answer. */
export function usedBefore(stored: StoredCommand, state: RunState): string | undefined {
  const parsed = parseCommand(stored.command);
  const id = parsed.ok ? parsed.command.id : parsed.id;
  return id !== undefined && isApplied(state, id, userOf(stored)) ? id : undefined;
}

function again(sender: Sender, { contradicts }: Situation): Reaction {
  if (!contradicts) return { kind: "skip", why: "answered before" };
  return answer(refused(sender, "idempotency_conflict", undefined));
}

interface Judging {
  readonly state: RunState;
  readonly situation: Situation;
  readonly sender: Sender;
}

function effectOf(command: Command, stored: StoredCommand, judging: Judging): Reaction {
  const { state, situation, sender } = judging;
  const { streamSeq } = stored;
  // Nobody would act on it: what the agent returned is the run's end, which is about to be written.
  if (situation.over && needsAgent(command.type)) {
    return answer(refused(sender, "not_allowed", { status: state.status }));
  }
  switch (command.type) {
    case "run.cancel":
      return {
        kind: "cancel",
        command: { ...sender, streamSeq, reason: command.payload.reason },
      };
    case "run.interrupt": {
      const { reason, preserve_context: preserveContext = true } = command.payload;
      return { kind: "interrupt", request: { ...sender, streamSeq, reason, preserveContext } };
    }
    case "run.resume":
      return { kind: "resume", events: [replyTo(sender, resumedEvent(situation))] };
    case "run.continue":
      return continued(command, judging);
    case "step.retry": {
      const events = judgeStepRetry(command.payload.step_id, streamSeq, state, sender);
      const goesOn = state.status === "interrupted" && events[0]?.type === "step.started";
      if (!goesOn) return { kind: "answer", events };
      return { kind: "resume", events: [...events, resumedEvent(situation)] };
    }
    case "approval.respond":
    case "tool_call.claim":
    case "tool_result.report":
    case "input.respond": {
      const { now, checkInput } = situation;
      return { kind: "answer", events: judge(command, stored, state, now, checkInput) };
    }
    default:
      // The table lets none of these through to a live run.
      return answer(refused(sender, "not_allowed", { status: state.status }));
  }
}

function needsAgent(type: Command["type"]): boolean {
  return (
    type === "run.interrupt" ||
    type === "run.resume" ||
    type === "run.continue" ||
    type === "step.retry"
  );
}

function continued(command: CommandOf<"run.continue">, judging: Judging): Reaction {
  const { state, situation, sender } = judging;
  const paused = state.status === "interrupted";
  const { content, attachments, options } = command.payload;
  const received = replyTo(sender, {
    type: "input.received",
    payload: {
      content,
      ...(attachments === undefined ? {} : { attachments }),
      ...(options === undefined ? {} : { options }),
      by: sender.user,
      queued: !paused && !situation.inboxAwaited,
    },
  });
  return paused
    ? { kind: "resume", events: [received, resumedEvent(situation)] }
    : { kind: "answer", events: [received] };
}

/** The same attempt: nobody else has taken the run over. */
function resumedEvent({ attempt, worker }: Situation): NewEvent {
  return { type: "run.resumed", payload: { attempt, worker } };
}

function answer(event: NewEvent): Reaction {
  return { kind: "answer", events: [event] };
}
