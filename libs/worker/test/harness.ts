/** Workers with agents made by tests, and runs of them, on a real nats-server. */
import { randomBytes } from "node:crypto";
import { bodyHash, type Broker, openBroker, type RunRef } from "@throughline/broker";
import {
  type DurableEvent,
  type DurableType,
  initialRunState,
  reduce,
  type RunCommandType,
  type RunState,
} from "@throughline/protocol";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll } from "vitest";
import {
  type Agent,
  createWorker,
  type Log,
  type Worker,
  type WorkerOptions,
} from "../src/index.ts";

/** Short, so that a takeover is. The server's redelivery and our own checks add about a second. */
export const ACK_WAIT_MS = 1_000;

export function unique(prefix: string): string {
  return `${prefix}_${randomBytes(6).toString("hex")}`;
}

export function freshRef(): RunRef {
  return { tenant: "acme", session: unique("ses"), run: unique("run") };
}

export interface TestWorker extends Worker {
  readonly broker: Broker;
  readonly logged: string[];
  /** As a process dies: its connection is gone, and it says nothing any more. */
  die(): Promise<void>;
}

export async function startWorker(
  url: string,
  agents: readonly Agent[],
  options: Partial<WorkerOptions> = {},
): Promise<TestWorker> {
  const broker = await openBroker({ servers: [url], name: "worker", shards: 2 });
  const logged: string[] = [];
  const worker = createWorker({
    broker,
    agents,
    ackWaitMs: ACK_WAIT_MS,
    log: recorder(logged),
    ...options,
  });
  await worker.start();
  return Object.defineProperties(
    { broker, logged, die: () => broker.close() },
    Object.getOwnPropertyDescriptors(worker),
  ) as TestWorker;
}

interface Premises {
  readonly nats: NatsServer;
  readonly broker: Broker;
}

/**
 * What the tests of one file share: a nats-server and a broker, given to `ready`. Returns what hosts agents
 * in a worker of its own, which is stopped after the test.
 */
export function workshop(
  ready: (made: Premises) => void,
  defaults: Partial<WorkerOptions> = {},
): (agents: Agent | readonly Agent[], options?: Partial<WorkerOptions>) => Promise<TestWorker> {
  const workers: TestWorker[] = [];
  let made: Premises;
  beforeAll(async () => {
    const nats = await startNats();
    made = { nats, broker: await openBroker({ servers: [nats.url], name: "test", shards: 2 }) };
    ready(made);
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
  });
  afterAll(async () => {
    await made.broker.close();
    await made.nats.dispose();
  });
  return async (agents, options = {}) => {
    const worker = await startWorker(made.nats.url, [agents].flat(), { ...defaults, ...options });
    workers.push(worker);
    return worker;
  };
}

function recorder(lines: string[]): Log {
  const at =
    (level: string): Log["info"] =>
    (fields, message) => {
      const error = fields["err"];
      lines.push(`${level} ${message}${error instanceof Error ? `: ${error.stack}` : ""}`);
    };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

export interface StartOver {
  readonly ref?: RunRef;
  readonly input?: unknown;
  /** ms from now (60,000). */
  readonly deadlineMs?: number;
  /** What else stands in `run.queued`. */
  readonly queued?: Pick<DurableEvent<"run.queued">["payload"], "tools" | "retry_of" | "from_step">;
}

/** What an edge does for `run.start`. */
export async function startRun(
  broker: Broker,
  agent: string,
  over: StartOver = {},
): Promise<RunRef> {
  const ref = over.ref ?? freshRef();
  const input = over.input ?? null;
  const deadline = Date.now() + (over.deadlineMs ?? 60_000);
  await broker.events.start({
    ref,
    agent,
    user: "ann",
    commandId: "start",
    hash: bodyHash({ agent, input }),
    deadline,
    payload: { agent, input, by: "ann", deadline, ...over.queued },
  });
  return ref;
}

let commands = 0;

/** What an edge does for a command to a run. */
export async function command(
  broker: Broker,
  ref: RunRef,
  type: RunCommandType,
  over: { id?: string; user?: string; reason?: string; payload?: object } = {},
): Promise<{ id: string; streamSeq: number }> {
  const id = over.id ?? `cmd_${++commands}`;
  const payload = over.reason === undefined ? (over.payload ?? {}) : { reason: over.reason };
  const value = { type, id, session_id: ref.session, run_id: ref.run, payload };
  const outcome = await broker.commands.publish({
    ref,
    command: value as Parameters<Broker["commands"]["publish"]>[0]["command"],
    user: over.user ?? "ann",
    hash: bodyHash(value),
  });
  if (outcome.outcome === "conflict") throw new Error(`another command has the id ${id}`);
  return { id, streamSeq: outcome.streamSeq };
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

/** Waits until the log holds such an event; gives the log. */
export async function logged(
  broker: Broker,
  ref: RunRef,
  is: (event: DurableEvent, state: RunState) => boolean,
): Promise<DurableEvent[]> {
  let seen: DurableEvent[] = [];
  await eventually(
    async () => {
      seen = await logOf(broker, ref);
      const state = reduced(ref, seen);
      return seen.some((event) => is(event, state));
    },
    { what: () => `an event that fits; the log: ${typesOf(seen).join(" ")}` },
  );
  return seen;
}

/** Waits for the answer to a command. */
export async function answered(broker: Broker, ref: RunRef, id: string): Promise<DurableEvent> {
  const events = await logged(broker, ref, (event) => event.reply_to === id);
  const answer = events.find((event) => event.reply_to === id);
  if (!answer) throw new Error(`no answer to ${id}`);
  return answer;
}

export function typesOf(events: readonly DurableEvent[]): DurableType[] {
  return events.map((event) => event.type);
}

export function reduced(ref: RunRef, events: readonly DurableEvent[]): RunState {
  return events.reduce((state, event) => reduce(state, event), initialRunState(ref.run));
}

/** Waits for the terminal event; gives the whole log. Checks INV2 and INV4 on the way. */
export async function ended(
  broker: Broker,
  ref: RunRef,
  timeoutMs = 15_000,
): Promise<DurableEvent[]> {
  let seen: DurableEvent[] = [];
  await eventually(
    async () => {
      const last = await broker.events.last({ kind: "run", ...ref }, "leader");
      return last?.end;
    },
    {
      timeoutMs,
      everyMs: 25,
      what: () => `the end of ${ref.run}; its log: ${typesOf(seen).join(" ")}`,
    },
  ).catch(async (error: unknown) => {
    seen = await logOf(broker, ref);
    throw new Error(`no end of ${ref.run}; its log: ${typesOf(seen).join(" ")}`, { cause: error });
  });
  const events = await logOf(broker, ref);
  const wrong = events.findIndex((event, index) => event.seq !== index + 1);
  if (wrong !== -1) throw new Error(`seq ${events[wrong]?.seq} at place ${wrong + 1}`);
  const terminals = events.filter((event) =>
    /^run\.(completed|failed|cancelled)$/.test(event.type),
  );
  if (terminals.length !== 1 || terminals[0] !== events.at(-1)) {
    throw new Error(`not one terminal at the end: ${typesOf(events).join(" ")}`);
  }
  return events;
}

/** Resolves when opened; a test's way to hold an agent at a place. */
export function latch(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}
