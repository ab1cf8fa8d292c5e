/** Runs of the scripted agent, started and steered over a raw connection. */
import type { Frame, RawClient } from "./raw-client.ts";
import { type Op, SCRIPTED } from "./script.ts";

export interface Target {
  readonly session: string;
  readonly run: string;
}

let commands = 0;

/** @param tools names of tools that the client executes */
export async function startScript(
  client: RawClient,
  session: string,
  ops: readonly Op[],
  { tools = [], agent = SCRIPTED }: { tools?: readonly string[]; agent?: string } = {},
): Promise<Target> {
  const answer = await client.ask({
    type: "run.start",
    session_id: session,
    payload: { agent, input: { do: ops }, tools: tools.map((name) => ({ name })) },
  });
  if (answer.run_id === undefined) throw new Error(`not started: ${JSON.stringify(answer)}`);
  return { session, run: answer.run_id };
}

/** Sends a command to a run, without waiting; its id. */
export function order(
  client: RawClient,
  { session, run }: Target,
  type: string,
  payload: Record<string, unknown> = {},
  id = `order_${(commands += 1)}`,
): string {
  return client.send({ type, id, session_id: session, run_id: run, payload });
}

/** The event that answers a command in the log, waited for. */
export function answerInLog(client: RawClient, id: string): Promise<Frame> {
  return client.frame((frame) => frame.seq !== undefined && frame["reply_to"] === id);
}

/** The run's event of a type, waited for. */
export function eventOf(
  client: RawClient,
  { run }: Target,
  type: string,
  matches: (payload: Readonly<Record<string, unknown>>) => boolean = () => true,
): Promise<Frame> {
  return client.frame(
    (frame) =>
      frame.seq !== undefined &&
      frame.run_id === run &&
      frame.type === type &&
      matches(frame.payload ?? {}),
  );
}
