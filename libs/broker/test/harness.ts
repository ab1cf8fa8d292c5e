import { randomBytes } from "node:crypto";
import type { DurableEvent, NewEvent } from "@throughline/protocol";
import {
  bodyHash,
  type Broker,
  type LogMessage,
  openRunWriter,
  type RunRef,
  type RunWriter,
  type RunWriterOptions,
} from "../src/index.ts";
import type { StartOutcome } from "../src/start.ts";

/** A run nobody else has, so that tests can share streams. */
export function freshRun(session: string = `ses_${randomBytes(6).toString("hex")}`): RunRef {
  return { tenant: "acme", session, run: `run_${randomBytes(6).toString("hex")}` };
}

export async function startRun(
  broker: Broker,
  ref: RunRef,
  over: { agent?: string; commandId?: string; input?: unknown } = {},
): Promise<StartOutcome> {
  const agent = over.agent ?? "echo";
  const deadline = Date.now() + 60_000;
  const input = over.input ?? { n: 1 };
  return broker.events.start({
    ref,
    agent,
    user: "ann",
    commandId: over.commandId ?? "cmd_1",
    hash: bodyHash({ agent, input }),
    deadline,
    payload: { agent, input, by: "ann", deadline },
  });
}

/** A started run with a writer at its position. */
export async function startedWriter(
  broker: Broker,
  ref: RunRef,
  over: Partial<RunWriterOptions> = {},
): Promise<RunWriter> {
  const started = await startRun(broker, ref);
  if (started.outcome !== "stored") throw new Error(`the start was a ${started.outcome}`);
  return openRunWriter(broker, {
    ref,
    epoch: started.epoch,
    attempt: 1,
    worker: "w1",
    position: { seq: 1, streamSeq: started.streamSeq, eSeq: 0, cmd: 0 },
    ...over,
  });
}

export function note(value: string | number): NewEvent<"custom"> {
  return { type: "custom", payload: { name: "note", value } };
}

export function eventsOf(message: LogMessage): DurableEvent[] {
  const lines = Buffer.from(message.body).toString("utf8").split("\n");
  return lines.map((line): DurableEvent => JSON.parse(line));
}

/** Everything stored of a run, through the leader's end. */
export async function wholeLog(broker: Broker, ref: RunRef): Promise<LogMessage[]> {
  const messages: LogMessage[] = [];
  let after = 0;
  for (;;) {
    const head = await broker.events.head(ref);
    const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo: head.streamSeq });
    messages.push(...page.messages);
    after = messages.at(-1)?.streamSeq ?? after;
    if (page.end) return messages;
  }
}

/** What is asked of JetStream about consumers, by anybody, until `stop`. */
export async function consumerRequests(
  broker: Broker,
): Promise<{ stop(): Promise<readonly string[]> }> {
  const seen: string[] = [];
  const tap = broker.nc.subscribe("$JS.API.CONSUMER.>", {
    callback: (_, message) => {
      seen.push(message.subject);
    },
  });
  await broker.nc.flush();
  return {
    stop: async () => {
      await broker.nc.flush();
      tap.unsubscribe();
      return seen;
    },
  };
}
