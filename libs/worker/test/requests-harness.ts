/** What devices do about a run's requests, and how a test waits for what came of it. */
import { bodyHash, type Broker, type RunRef } from "@throughline/broker";
import type {
  ApprovalState,
  DurableEvent,
  DurableType,
  InputState,
  RunState,
  ToolCallState,
} from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import { eventually } from "@throughline/testkit";
import { logOf, reduced, unique } from "./harness.ts";

export interface SendOver {
  readonly id?: string;
  readonly user?: string;
  readonly reply_to?: string;
  /** When an edge took it (now). */
  readonly at?: number;
}

type RequestCommandType =
  | "approval.respond"
  | "tool_call.claim"
  | "tool_result.report"
  | "input.respond"
  | "run.interrupt"
  | "run.resume"
  | "run.cancel";

/** What an edge does for it. Gives the command's id. */
export async function send(
  broker: Broker,
  ref: RunRef,
  type: RequestCommandType,
  payload: unknown,
  over: SendOver = {},
): Promise<string> {
  const id = over.id ?? unique("cmd");
  const reply = over.reply_to === undefined ? {} : { reply_to: over.reply_to };
  const value = { type, id, session_id: ref.session, run_id: ref.run, ...reply, payload };
  const parsed = parseCommand(value);
  if (!parsed.ok) throw new Error(parsed.message);
  await broker.commands.publish({
    ref,
    command: parsed.command,
    user: over.user ?? "ann",
    hash: bodyHash(value),
    at: over.at ?? Date.now(),
  });
  return id;
}

/** All events that answer the command, once there are any. */
export function answersTo(broker: Broker, ref: RunRef, id: string): Promise<DurableEvent[]> {
  return eventually(
    async () => {
      const events = (await logOf(broker, ref)).filter((event) => event.reply_to === id);
      return events.length > 0 && events;
    },
    { what: `an answer to ${id}` },
  );
}

/** A verdict in a word: the event's type, or the code of the rejection. */
export function inShort(event: DurableEvent): string {
  return event.type === "command.rejected" ? event.payload.code : event.type;
}

/** Sends, and waits for the verdict. */
export async function verdict(
  broker: Broker,
  ref: RunRef,
  type: RequestCommandType,
  payload: unknown,
  over: SendOver = {},
): Promise<DurableEvent> {
  const [event] = await answersTo(broker, ref, await send(broker, ref, type, payload, over));
  if (!event) throw new Error("no verdict");
  return event;
}

export async function stateOfRun(broker: Broker, ref: RunRef): Promise<RunState> {
  return reduced(ref, await logOf(broker, ref));
}

export function untilState<T>(
  broker: Broker,
  ref: RunRef,
  look: (state: RunState) => T | undefined | false,
): Promise<Exclude<T, false | 0 | "" | null | undefined | void>> {
  return eventually(async () => look(await stateOfRun(broker, ref)) || undefined, {
    what: `${ref.run}: ${look.toString().slice(0, 200)}`,
  });
}

export function openApproval(broker: Broker, ref: RunRef): Promise<ApprovalState> {
  return untilState(broker, ref, (state) => state.approvals.find((one) => one.status === "open"));
}

export function openInput(broker: Broker, ref: RunRef): Promise<InputState> {
  return untilState(broker, ref, (state) => state.inputs.find((one) => one.status === "open"));
}

/** By their names: the calls that a client is to execute, once there are as many. */
export async function clientCalls(
  broker: Broker,
  ref: RunRef,
  count: number,
): Promise<Record<string, ToolCallState>> {
  const calls = await untilState(broker, ref, (state) => {
    const open = state.tool_calls.filter((call) => call.executor === "client");
    return open.length >= count && open;
  });
  return Object.fromEntries(calls.map((call) => [call.name, call]));
}

export function ofType<T extends DurableType>(
  events: readonly DurableEvent[],
  type: T,
): DurableEvent<T>[] {
  return events.filter((event): event is DurableEvent<T> => event.type === type);
}

/** Of `run.queued`: the tools that a client of the run executes. */
export function clientTools(names: readonly string[]): { tools: { name: string }[] } {
  return { tools: names.map((name) => ({ name })) };
}
