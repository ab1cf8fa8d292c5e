/** A command's id outlives the server's window of duplicates. */
import { type Edge, eventually } from "@throughline/testkit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import { answerInLog, eventOf, startScript } from "./scripted-run.ts";
import { SHARDS, startWorld, type World } from "./world.ts";

const WINDOW_MS = 200;

let world: World;
let edge: Edge;

beforeAll(async () => {
  world = await startWorld();
  [edge] = await Promise.all([world.edge(), world.worker()]);
  // What takes two minutes by default.
  for (let shard = 0; shard < SHARDS; shard += 1)
    await world.broker.jsm.streams.update(`TL_CM_${shard}`, {
      duplicate_window: WINDOW_MS * 1_000_000,
    });
});
afterAll(() => world.dispose());

test("[INV5] [C21] [CMDW2] long after it was answered, a command has no second effect, and its id with other content is a conflict", async () => {
  const client = await RawClient.connect(edge.connectUrl);
  const session = await client.createSession();
  await client.subscribe(session);
  const { run } = await startScript(client, session, [
    { op: "inbox", wait: true },
    { op: "inbox", wait: true },
  ]);
  await eventOf(client, { session, run }, "run.status");
  const command = (content: unknown) => ({
    type: "run.continue",
    id: "once",
    session_id: session,
    run_id: run,
    payload: { content },
  });
  expect(await client.ask(command(1))).toMatchObject({ duplicate: false });
  await answerInLog(client, "once");
  // Past the window the stream takes it for a new one; the run does not.
  await eventually(async () => (await client.ask(command(2))).type === "command.accepted");
  const verdict = await client.frame(
    ({ type, seq }) => type === "command.rejected" && seq !== undefined,
  );
  expect(verdict.payload).toMatchObject({ id: "once", code: "idempotency_conflict" });
  await eventually(async () => (await client.ask(command(1)))["duplicate"] === false);
  await client.ask({ ...command(3), id: "twice" });
  await eventOf(client, { session, run }, "run.completed");
  const said = (await world.log(session, run)).filter(({ reply_to }) => reply_to === "once");
  expect(said.map(({ type }) => type)).toEqual(["input.received", "command.rejected"]);
  client.close();
});
