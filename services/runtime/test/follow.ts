/** Starting runs and reading their logs, as an edge and a client would. */
import { randomBytes } from "node:crypto";
import { bodyHash, type Broker, type RunRef } from "@throughline/broker";
import {
  type Command,
  type CommandOf,
  type DurableEvent,
  type EventPayload,
  initialRunState,
  reduce,
  type RunState,
} from "@throughline/protocol";
import { eventually } from "@throughline/testkit";

export interface StartOver extends Pick<
  EventPayload<"run.queued">,
  "tools" | "options" | "retry_of"
> {
  readonly session?: string;
}

export async function startRun(
  broker: Broker,
  agent: string,
  input: unknown,
  { session, ...over }: StartOver = {},
): Promise<RunRef> {
  const id = (prefix: string): string => `${prefix}_${randomBytes(6).toString("hex")}`;
  const ref = { tenant: "acme", session: session ?? id("ses"), run: id("run") };
  const deadline = Date.now() + 60_000;
  const payload = { agent, input: input ?? null, by: "ann", deadline, ...over };
  const hash = bodyHash({ agent, input });
  await broker.events.start({
    ref,
    agent,
    user: "ann",
    commandId: "start",
    hash,
    deadline,
    payload,
  });
  return ref;
}

export async function cancelRun(broker: Broker, ref: RunRef): Promise<void> {
  await sendCommand(broker, ref, { type: "run.cancel", id: "cancel", payload: {} });
}

type ToRun = Extract<Command, { readonly run_id: string }> | CommandOf<"run.cancel">;
type Unaddressed<C> = C extends unknown ? Omit<C, "session_id" | "run_id"> : never;

/** What an edge does with a command to a run. */
export async function sendCommand(
  broker: Broker,
  ref: RunRef,
  partial: Unaddressed<ToRun>,
): Promise<void> {
  const command = { ...partial, session_id: ref.session, run_id: ref.run };
  const hash = bodyHash(command);
  await broker.commands.publish({ ref, command, user: "ann", hash, at: Date.now() });
}

/** Everything stored of a run. */
export async function logOf(broker: Broker, ref: RunRef): Promise<DurableEvent[]> {
  const events: DurableEvent[] = [];
  let after = 0;
  for (;;) {
    const { streamSeq: upTo } = await broker.events.head(ref);
    const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo });
    for (const message of page.messages) {
      const lines = Buffer.from(message.body).toString("utf8").split("\n");
      events.push(...lines.map((line) => JSON.parse(line) as DurableEvent));
      after = message.streamSeq;
    }
    if (page.end) return events;
  }
}

export interface Followed {
  readonly events: readonly DurableEvent[];
  readonly state: RunState;
}

/** Waits for the terminal; the reducer refuses a hole on the way (INV2), and the terminal must be the one last event (INV4). */
export async function ended(broker: Broker, ref: RunRef, timeoutMs = 25_000): Promise<Followed> {
  await eventually(async () => (await broker.events.last({ kind: "run", ...ref }, "leader"))?.end, {
    timeoutMs,
    everyMs: 25,
    what: `the end of ${ref.run}`,
  });
  const events = await logOf(broker, ref);
  const terminals = events.filter((event) =>
    /^run\.(completed|failed|cancelled)$/.test(event.type),
  );
  if (terminals.length !== 1 || terminals[0] !== events.at(-1)) {
    throw new Error(`not one terminal at the end: ${events.map((event) => event.type).join(" ")}`);
  }
  return { events, state: stateOf(ref, events) };
}

export function stateOf(ref: RunRef, events: readonly DurableEvent[]): RunState {
  return events.reduce((state, event) => reduce(state, event), initialRunState(ref.run));
}

/** The state of a run as soon as it is as wanted. */
export async function stateWhen(
  broker: Broker,
  ref: RunRef,
  is: (state: RunState) => boolean,
): Promise<RunState> {
  let seen: RunState | undefined;
  const found = await eventually(
    async () => {
      seen = stateOf(ref, await logOf(broker, ref));
      return is(seen) || seen.ended_at !== undefined ? seen : undefined;
    },
    { timeoutMs: 20_000, what: () => `${ref.run}: ${JSON.stringify(seen)}` },
  );
  if (!is(found)) throw new Error(`it has ended: ${JSON.stringify(found)}`);
  return found;
}

/** What a reader sees in the end: all messages that count, one after the other. */
export function shownText(state: RunState, channel: "text" | "reasoning" = "text"): string {
  return state.messages
    .filter((message) => message.channel === channel && message.status === "completed")
    .map((message) => message.text)
    .join("");
}
