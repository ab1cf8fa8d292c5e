import { type Edge, eventually, seededRandom } from "@throughline/testkit";
import { expect } from "vitest";
import { FuzzGrammar, type FuzzTarget } from "./fuzz-grammar.ts";
import { gauge, residentMb, startInspectedEdge } from "./gauges.ts";
import { frameBytes, OPCODE, RawSocket } from "./raw-socket.ts";
import { completed, note, range, Stage } from "./stage.ts";

/** Connections at a time. */
const LANES = 32;
/** How long a connection is watched for an answer: much of what is sent has none. */
const PATIENCE_MS = 150;
const SAMPLES = 20;
/** Samples after which code is compiled and caches are filled. */
const WARM_UP = 7;
const EVE = "dev.acme.eve";

export interface FuzzReport {
  readonly inputs: number;
  /** MB, at even distances. */
  readonly rss: readonly number[];
  /** MB of the heap after a full collection, likewise. */
  readonly held: readonly number[];
  /** What the inputs were answered with, and how often. */
  readonly answers: Readonly<Record<string, number>>;
}

/**
 * Sends so many mutated frames and requests to an edge process, while a run goes on that a correct client
 * follows. Throws where the process ends, says that something inside failed, or keeps something: with
 * `untilRested` also where its heap does not come back to what it was after the warm-up, once the hubs that
 * linger are gone.
 */
export async function fuzz(
  inputs: number,
  { untilRested = false }: { readonly untilRested?: boolean } = {},
): Promise<FuzzReport> {
  const random = seededRandom();
  const stage = await Stage.open();
  // Little room for what is kept on purpose, so that it is soon full.
  const env = { TL_SHARDS: "2", TL_FANOUT_BYTES: String(8 * 1024 * 1024) };
  const { edge, heldMb } = await startInspectedEdge(stage.nats.url, env);
  const session = await stage.session(edge);
  const canary = await stage.run(session);
  const viewer = await stage.connected(edge);
  await viewer.subscribe({ session, run: canary.ref.run });
  const grammar = new FuzzGrammar(random, await targetOf(stage, edge));

  const answers: Record<string, number> = {};
  const rss: number[] = [];
  const held: number[] = [];
  let sent = 0;
  let written = 1;
  for (let sample = 1; sample <= SAMPLES; sample += 1) {
    const upTo = Math.round((inputs * sample) / SAMPLES);
    // The runs that the commands start pile up in a session: each part has one of its own, and is as much work.
    grammar.aim(await targetOf(stage, edge));
    const lane = async (): Promise<void> => {
      while (sent < upTo) {
        const { count, words } = await (random.chance(0.5) ? overWebSocket : overHttp)(
          edge,
          grammar,
        );
        sent += count;
        for (const word of words) answers[word] = (answers[word] ?? 0) + 1;
      }
    };
    const lanes = Promise.all(Array.from({ length: LANES }, lane));
    let isGoingOn = true;
    const writing = (async () => {
      for (; isGoingOn; written += 1) {
        await canary.writer.append(note(written));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    })();
    await lanes.finally(() => (isGoingOn = false));
    await writing;
    expect(edge.running, edge.logs().slice(-4_000)).toBe(true);
    // A newcomer is served as well, with all of it.
    const newcomer = await stage.connected(edge);
    await newcomer.subscribe({ session, run: canary.ref.run });
    await newcomer.until(() => newcomer.seqs().length >= written, `${written} events`);
    expect(newcomer.seqs()).toEqual(range(1, written));
    newcomer.terminate();
    rss.push(await residentMb(edge));
    held.push(await heldMb());
  }

  await canary.writer.append(completed);
  await viewer.frame("run.completed");
  expect(viewer.seqs()).toEqual(range(1, written + 1));
  viewer.terminate();
  // Nobody is left, and no place is kept for anybody.
  await eventually(async () => (await gauge(edge, "throughline_edge_connections")) === 0);
  expect(edge.logs()).not.toMatch(/"level":"?(error|fatal|50|60)/);
  expect(Object.keys(answers).filter((word) => FAILURES.has(word))).toEqual([]);
  if (untilRested) {
    const hubs = (): Promise<number> => gauge(edge, "throughline_edge_hubs");
    await eventually(async () => (await hubs()) === 0, { timeoutMs: 60_000 });
    expect(await heldMb()).toBeLessThan((held[WARM_UP] ?? 0) + 5);
  }
  await edge.dispose();
  await stage.close();
  return { inputs: sent, rss, held, answers };
}

/** Nothing that a client sends may come to these: they stand for a fault of the node's own. */
const FAILURES = new Set([
  "500",
  "close 1011",
  "close 1013",
  "error internal",
  "command.rejected internal",
]);

/** A session of the fuzzing user with a run that nobody takes up. */
async function targetOf(stage: Stage, edge: Edge): Promise<FuzzTarget> {
  const session = await stage.session(edge, EVE);
  const client = await stage.connected(edge, { token: EVE });
  const started = await client.ask({
    type: "run.start",
    session_id: session,
    payload: { agent: "nobody", input: 1 },
  });
  const run = started.run_id ?? "";
  await client.subscribe({ session, run });
  await client.frame("run.queued");
  const { cursor } = client;
  client.terminate();
  return { session, run, cursor, token: EVE };
}

interface Exchange {
  readonly count: number;
  readonly words: readonly string[];
}

async function overWebSocket(edge: Edge, grammar: FuzzGrammar): Promise<Exchange> {
  const raw = await RawSocket.open(edge.port);
  const head = grammar.handshake();
  await write(raw, grammar.packets(head));
  await settled(raw, () => raw.text.includes("\r\n\r\n"));
  if (raw.status !== 101) {
    raw.destroy();
    return { count: 1, words: [String(raw.status)] };
  }
  const frames = grammar.frames(20);
  for (const frame of frames) await write(raw, grammar.packets(frame));
  // Its answer comes behind those that are made at once; those that wait for NATS may be cut short.
  raw.write(frameBytes({ opcode: OPCODE.ping, payload: "last" }));
  await settled(raw, () =>
    raw.frames().some(({ payload }) => payload.toString("latin1") === "last"),
  );
  // Our end comes behind all that we sent, and the server's behind all its answers that are ready.
  raw.end();
  await settled(raw, () => raw.ended);
  const words = raw.frames().map(word);
  raw.destroy();
  return { count: 1 + frames.length, words };
}

async function overHttp(edge: Edge, grammar: FuzzGrammar): Promise<Exchange> {
  const raw = await RawSocket.open(edge.port);
  const { count, bytes } = grammar.requests();
  await write(raw, grammar.packets(bytes));
  await settled(raw, () => raw.isAnswered);
  raw.destroy();
  return { count, words: [String(raw.status)] };
}

async function write(raw: RawSocket, packets: readonly Buffer[]): Promise<void> {
  for (const packet of packets) {
    raw.write(packet);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Until it has ended, or the condition holds, or nothing more is to be expected. */
async function settled(raw: RawSocket, isDone: () => boolean): Promise<void> {
  const until = performance.now() + PATIENCE_MS;
  while (!raw.ended && !isDone() && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function word({ opcode, payload }: ReturnType<RawSocket["frames"]>[number]): string {
  if (opcode === OPCODE.pong) return "pong";
  if (opcode === OPCODE.close) return `close ${payload.length < 2 ? "" : payload.readUInt16BE()}`;
  const { type, code }: { type: string; code?: string } = JSON.parse(payload.toString("utf8"));
  return code === undefined ? type : `${type} ${code}`;
}

/** MB that a straight line through the samples rises from the first to the last, behind the warm-up. */
export function risen(samples: readonly number[]): number {
  const taken = samples.slice(WARM_UP);
  const mean = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0) / list.length;
  const middle = (taken.length - 1) / 2;
  const average = mean(taken);
  const slope =
    mean(taken.map((y, x) => (x - middle) * (y - average))) /
    mean(taken.map((_, x) => (x - middle) ** 2));
  return slope * (taken.length - 1);
}
