/**
 * Text on the ephemeral lane comes on a subscription of its own and can overtake, or be overtaken by,
 * the events it belongs to. A proxy that holds single messages back makes both happen on purpose.
 */
import { openRunWriter, type RunWriter } from "@throughline/broker";
import { type Edge, eventually, natsFilter, type TcpProxy, tcpProxy } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BY_HAND, writerOf } from "./hand-worker.ts";
import { type Frame, RawClient } from "./raw-client.ts";
import { readLog, startWorld, TENANT, type World } from "./world.ts";

let world: World;
let edge: Edge;
let proxy: TcpProxy;
/** Subjects that begin so are held back on their way to the edge. */
let holding: string | undefined;
/** Messages with a delta that the edge was given. */
let deltasPassed = 0;

const filter = natsFilter(({ subject, payload }) => {
  if (holding !== undefined && subject.startsWith(holding)) return "hold";
  if (subject.startsWith("tl.ep.") && payload.includes("model.delta")) deltasPassed += 1;
  return "pass";
});

beforeAll(async () => {
  world = await startWorld();
  proxy = await tcpProxy({ port: world.nats.port });
  proxy.tap(filter.tap);
  edge = await world.edge({ natsUrl: `nats://${proxy.address}` });
});
afterAll(async () => {
  await world.dispose();
  proxy.close();
});

let client: RawClient;
let session: string;
let run: string;
let writer: RunWriter;

/** A run whose step has begun a message; the client follows it and has seen a first delta. */
beforeEach(async () => {
  holding = undefined;
  client = await RawClient.connect(edge.connectUrl);
  session = await client.createSession();
  run = await client.start(session, BY_HAND, null);
  await client.subscribe(session, run);
  writer = await writerOf(world.broker, session, run);
  await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
  await writer.append({
    type: "step.started",
    step_id: "stp_1",
    payload: { step_id: "stp_1", name: "write" },
  });
  await begin("msg_1", "stp_1");
  delta(writer, "msg_1", 0, "shown");
  await client.frame(shows("shown"));
});
afterEach(() => {
  holding = undefined;
  filter.release();
  writer.discard();
  client.terminate();
});

const begin = (message_id: string, step_id: string): Promise<unknown> =>
  writer.append({
    type: "message.started",
    step_id,
    payload: { message_id, role: "assistant", channel: "text" },
  });

function delta(from: RunWriter, message_id: string, offset: number, text: string): void {
  from.ephemeral({ type: "model.delta", payload: { message_id, offset, text } });
}

function shows(text: string): (frame: Frame) => boolean {
  return (frame) => frame.type === "model.delta" && frame.payload?.["text"] === text;
}

/**
 * Says something on the ephemeral lane that may be shown, and waits until it is: what was sent before
 * it on that lane has had its chance by then.
 */
async function laneReaches(from: RunWriter): Promise<void> {
  const message = `lane ${Math.random()}`;
  from.ephemeral({ type: "log", payload: { level: "info", message } });
  await client.frame((frame) => frame.type === "log" && frame.payload?.["message"] === message);
}

const shown = (text: string): boolean => client.frames.some(shows(text));

describe("a late delta", () => {
  test("[INV3] ahead of its durable predecessor is shown after it, and only then", async () => {
    holding = "tl.lv.";
    const before = deltasPassed;
    await begin("msg_2", "stp_1");
    delta(writer, "msg_2", 0, "early");
    await eventually(() => filter.held > 0 && deltasPassed > before);
    filter.release();
    await client.frame(shows("early"));
    const at = (matches: (frame: Frame) => boolean): number => client.frames.findIndex(matches);
    const begun = at((f) => f.type === "message.started" && f.payload?.["message_id"] === "msg_2");
    expect(begun).toBeGreaterThan(0);
    expect(at(shows("early"))).toBeGreaterThan(begun);
  });

  test("[INV3] of a step that an interrupt has stopped is never shown, not after the run goes on either", async () => {
    holding = "tl.ep.";
    delta(writer, "msg_1", 5, " too late");
    await eventually(() => filter.held > 0);
    await writer.appendAll([
      {
        type: "message.completed",
        step_id: "stp_1",
        payload: { message_id: "msg_1", length: 5, finish_reason: "interrupted" },
      },
      {
        type: "step.failed",
        step_id: "stp_1",
        payload: {
          step_id: "stp_1",
          error: { code: "interrupted", message: "stopped", retryable: true },
        },
      },
      { type: "run.interrupted", payload: { preserve_context: true, by: "ann" } },
    ]);
    await client.frame((frame) => frame.type === "run.interrupted");
    holding = undefined;
    filter.release();
    await laneReaches(writer);
    expect(shown(" too late")).toBe(false);

    // The same attempt goes on, with another step.
    holding = "tl.ep.";
    delta(writer, "msg_1", 5, " later still");
    await eventually(() => filter.held > 0);
    await writer.append({ type: "run.resumed", payload: { attempt: 1, worker: BY_HAND } });
    await client.frame((frame) => frame.type === "run.resumed");
    holding = undefined;
    filter.release();
    await begin("msg_2", "stp_1");
    delta(writer, "msg_2", 0, "anew");
    await client.frame(shows("anew"));
    expect(shown(" too late") || shown(" later still")).toBe(false);
  });

  test("[INV3] [C19] of a fenced worker is never shown beside its successor's", async () => {
    holding = "tl.ep.";
    delta(writer, "msg_1", 5, " of the past");
    await eventually(() => filter.held > 0);
    const messages = await readLog(world.broker, { tenant: TENANT, session, run });
    const last = messages.at(-1);
    if (last === undefined) throw new Error("no log");
    const successor = openRunWriter(world.broker, {
      ref: { tenant: TENANT, session, run },
      epoch: last.epoch,
      attempt: 2,
      worker: BY_HAND,
      position: {
        seq: last.lastSeq,
        streamSeq: last.streamSeq,
        eSeq: last.streamSeq,
        cmd: 0,
      },
    });
    await successor.append({ type: "run.resumed", payload: { attempt: 2, worker: BY_HAND } });
    await client.frame((frame) => frame.type === "run.resumed");
    holding = undefined;
    filter.release();
    // It does not know yet that it has lost the run.
    delta(writer, "msg_1", 5, " of a zombie");
    await world.broker.nc.flush();
    await successor.append({
      type: "message.started",
      payload: { message_id: "msg_1", role: "assistant", channel: "text" },
    });
    delta(successor, "msg_1", 0, "of the successor");
    await client.frame(shows("of the successor"));
    expect(shown(" of the past") || shown(" of a zombie")).toBe(false);
    const afterwards = client.frames.slice(
      client.frames.findIndex(({ type }) => type === "run.resumed"),
    );
    expect(afterwards.filter((f) => f.seq === undefined && f.attempt === 1)).toEqual([]);
    successor.discard();
  });
});
