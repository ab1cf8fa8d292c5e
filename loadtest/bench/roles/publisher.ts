/** Role: the workers. Real run writers of libs/broker, on a connection and a loop of their own. */
import { type NatsConnection, connect as connectNats } from "@nats-io/transport-node";
import {
  bodyHash,
  type Broker,
  openBroker,
  openRunWriter,
  type RunRef,
  type RunWriter,
} from "@throughline/broker";
import { eventAt, paced, type Paced, type Pattern } from "../figures/pace.ts";
import { sharedMicros } from "../process/proc.ts";
import { serve } from "@throughline/testkit";
import { stamp } from "./stamp.ts";
import { type TextFigures, writeTexts } from "./tokens.ts";

/** What a burst put on the two lanes. */
export interface Burst extends Paced {
  readonly durables: number;
  readonly deltas: number;
  /** Stored messages that the durable events took: fewer than events where a writer batched. */
  readonly messages: number;
}

export type PublisherMethods = {
  readonly open: (q: { natsUrl: string }) => Promise<void>;
  /** Starts runs that nobody executes, and opens a writer on each; those of earlier calls are let go. */
  readonly start: (q: { refs: readonly RunRef[]; unwatched?: readonly RunRef[] }) => Promise<void>;
  /** Emits the pattern's events; resolves when what is durable is stored. */
  readonly burst: (q: { pattern: Pattern; on: "watched" | "unwatched" }) => Promise<Burst>;
  /**
   * The same with the time of making in every event. Every third event is durable, every third a delta
   * (on runs of their own), every third a bare core NATS message of about the same size.
   */
  readonly stampedBurst: (q: { pattern: Pattern; bare: string }) => Promise<Burst>;
  /** Tokens at a steady rate through the writers' text lane, as `ctx.message()` writes them. */
  readonly texts: (q: { tokensPerSecond: number; ms: number }) => Promise<TextFigures>;
};

interface Written {
  readonly ref: RunRef;
  readonly writer: RunWriter;
  readonly messageId: string;
  offset: number;
  /** Shown by deltas since the last checkpoint. */
  unsettled: string;
  lastStreamSeq: number;
}

const DURABLE_TEXT = "x".repeat(80);
const DELTA_TEXT = " some words of a model";
const STARTS_AT_ONCE = 64;

let broker: Broker | undefined;
let nats: NatsConnection | undefined;
let runs: Written[] = [];
/** Runs that no viewer has subscribed to. */
let unwatchedRuns: Written[] = [];

const methods: PublisherMethods = {
  open: async ({ natsUrl }) => {
    broker = await openBroker({ servers: [natsUrl], name: "bench publisher" });
    nats = await connectNats({ servers: natsUrl, name: "bench bare publisher" });
  },

  start: async ({ refs, unwatched = [] }) => {
    for (const { writer } of [...runs, ...unwatchedRuns]) writer.discard();
    runs = await startRuns(refs);
    unwatchedRuns = await startRuns(unwatched);
  },

  burst: ({ pattern, on }) => {
    const written = on === "watched" ? runs : unwatchedRuns;
    return burst(pattern, (i) => {
      const { run, durable } = eventAt(i, pattern);
      return { written: at(written, run), durable, mark: "" };
    });
  },

  stampedBurst: ({ pattern, bare }) => {
    const half = Math.floor(runs.length / 2);
    const textPattern = { ...pattern, runs: half };
    return burst(pattern, (i) => {
      const turn = Math.floor(i / 3);
      const mark = stamp(sharedMicros());
      if (i % 3 === 0) return { written: at(runs, turn % half), durable: true, mark };
      if (i % 3 === 1) {
        const { run, durable } = eventAt(turn, textPattern);
        return { written: at(runs, half + run), durable, mark };
      }
      nats?.publish(bare, `{"pad":"${"x".repeat(200)}","text":"${mark}"}`);
      return undefined;
    });
  },

  texts: (pace) => writeTexts(opened(), runs, pace),
};

serve(methods);

function opened(): Broker {
  if (broker === undefined) throw new Error("the publisher is not open");
  return broker;
}

function at(written: readonly Written[], run: number): Written {
  const found = written[run];
  if (found === undefined) throw new Error(`there is no run ${run}`);
  return found;
}

async function startRuns(refs: readonly RunRef[]): Promise<Written[]> {
  const started: Written[] = [];
  let next = 0;
  const starter = async (): Promise<void> => {
    for (let i = next++; i < refs.length; i = next++) {
      const ref = refs[i];
      if (ref) started[i] = await startRun(opened(), ref);
    }
  };
  await Promise.all(Array.from({ length: STARTS_AT_ONCE }, starter));
  return started;
}

async function startRun(open: Broker, ref: RunRef): Promise<Written> {
  const deadline = Date.now() + 3_600_000;
  const started = await open.events.start({
    ref,
    agent: "bench",
    user: "bench",
    commandId: "start",
    hash: bodyHash(ref),
    deadline,
    payload: { agent: "bench", input: null, by: "bench", deadline },
  });
  if (started.outcome !== "stored") throw new Error(`the start of ${ref.run}: ${started.outcome}`);
  const { epoch, streamSeq } = started;
  const writer = openRunWriter(open, {
    ref,
    epoch,
    attempt: 1,
    worker: "bench",
    position: { seq: 1, streamSeq, eSeq: 0, cmd: 0 },
  });
  return { ref, writer, messageId: "msg_1", offset: 0, unsettled: "", lastStreamSeq: 0 };
}

interface Emission {
  readonly written: Written;
  readonly durable: boolean;
  /** The time of making, or nothing. */
  readonly mark: string;
}

async function burst(pattern: Pattern, what: (i: number) => Emission | undefined): Promise<Burst> {
  const counts = { durables: 0, deltas: 0, messages: 0 };
  const failures: unknown[] = [];
  const made = await paced(pattern, (i) => {
    const emission = what(i);
    if (emission === undefined) return;
    const { written, durable, mark } = emission;
    if (!durable) {
      counts.deltas += 1;
      emitDelta(written, mark);
      return;
    }
    counts.durables += 1;
    append(written, mark).then(
      ({ streamSeq }) => {
        if (streamSeq !== written.lastStreamSeq) counts.messages += 1;
        written.lastStreamSeq = streamSeq;
      },
      (error: unknown) => failures.push(error),
    );
  });
  await Promise.all([...runs, ...unwatchedRuns].map(({ writer }) => writer.flush()));
  if (failures.length > 0) throw failures[0];
  return { ...made, ...counts };
}

function emitDelta(written: Written, mark: string): void {
  const text = `${mark}${DELTA_TEXT}`;
  const { messageId: message_id, offset } = written;
  written.writer.ephemeral({ type: "model.delta", payload: { message_id, offset, text } });
  written.offset += text.length;
  written.unsettled += text;
}

/** A checkpoint of what the deltas have shown, or, where there were none, an event like any other. */
function append(written: Written, mark: string): ReturnType<RunWriter["append"]> {
  const { writer, unsettled, messageId: message_id } = written;
  if (unsettled === "") {
    const value = { text: `${mark}${DURABLE_TEXT}` };
    return writer.append({ type: "custom", payload: { name: "bench", value } });
  }
  // Old stamps must not be read again.
  const text = unsettled.replaceAll("@", "#");
  written.unsettled = "";
  const offset = written.offset - text.length;
  return writer.append({ type: "model.chunk", payload: { message_id, offset, text } });
}
