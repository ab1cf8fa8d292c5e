/** Text as a model gives it: short pieces at a steady rate, through the run writer's text lane. */
import type { Broker, RunRef, RunWriter } from "@throughline/broker";
import { paced } from "../figures/pace.ts";

export interface TextFigures {
  readonly tokens: number;
  readonly characters: number;
  /** Messages that the log holds for them: the message's start, its checkpoints and its end. */
  readonly stored: number;
  readonly storedBytes: number;
  /** Messages on the ephemeral lane. */
  readonly deltas: number;
}

/** About 4.3 characters each, as tokens of English prose are. */
const TOKENS =
  " the run| is| two| logs|,| and| both| are| read| by| one| prim|itive| that| we| call| tail|.".split(
    "|",
  );

/** Writes one message on each run, all at the same rate; counts what the log and the ephemeral lane took. */
export async function writeTexts(
  broker: Broker,
  runs: readonly { readonly ref: RunRef; readonly writer: RunWriter }[],
  pace: { readonly tokensPerSecond: number; readonly ms: number },
): Promise<TextFigures> {
  let deltas = 0;
  const lanes = runs.map(({ ref }) =>
    broker.events.ephemeral({ kind: "run", ...ref }, () => (deltas += 1)),
  );
  const message_id = "msg_tokens";
  const streams = runs.map(({ writer }) => {
    void writer.append({
      type: "message.started",
      payload: { message_id, role: "assistant", channel: "text" },
    });
    return writer.text(message_id);
  });
  const pattern = {
    rate: pace.tokensPerSecond * runs.length,
    ms: pace.ms,
    runs: runs.length,
    deltasPerCheckpoint: 0,
  };
  const failures: unknown[] = [];
  const { events: tokens } = await paced(pattern, (i) => {
    const token = TOKENS[Math.floor(i / runs.length) % TOKENS.length] ?? "";
    streams[i % runs.length]?.write(token).catch((error: unknown) => failures.push(error));
  });
  let characters = 0;
  for (const [i, { writer }] of runs.entries()) {
    const stream = streams[i];
    if (stream === undefined) continue;
    characters += stream.length;
    await stream.end();
    const { length } = stream;
    await writer.append({
      type: "message.completed",
      payload: { message_id, length, finish_reason: "stop" },
    });
  }
  if (failures.length > 0) throw failures[0];
  const stored = await Promise.all(runs.map(({ ref }) => storedOf(broker, ref)));
  for (const lane of lanes) lane.close();
  return {
    tokens,
    characters,
    stored: stored.reduce((sum, { messages }) => sum + messages, 0),
    storedBytes: stored.reduce((sum, { bytes }) => sum + bytes, 0),
    deltas,
  };
}

/** What the log holds of a run, its `run.queued` left out. */
async function storedOf(broker: Broker, ref: RunRef): Promise<{ messages: number; bytes: number }> {
  const { streamSeq: upTo } = await broker.events.head(ref);
  const found = { messages: 0, bytes: 0 };
  let after = 0;
  for (;;) {
    const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo });
    for (const { streamSeq, firstSeq, body } of page.messages) {
      after = streamSeq;
      if (firstSeq === 1) continue;
      found.messages += 1;
      found.bytes += body.byteLength;
    }
    if (page.end) return found;
  }
}
