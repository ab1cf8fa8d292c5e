/** A run whose state fits no frame, followed from its state by the client SDK. */
import { createClient } from "@throughline/client/node";
import { messageText, type RunState } from "@throughline/protocol";
import { eventually } from "@throughline/testkit";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SCRIPTED, type Script } from "./script.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let urls: readonly string[];

beforeAll(async () => {
  world = await startWorld();
  const [a, b] = await Promise.all([world.edge(), world.edge(), world.worker()]);
  urls = [a.url, b.url];
});
afterAll(() => world.dispose());

test("[CLI46] [INV6] a second device has all that was said, and what comes then", async () => {
  const line = "all work and no play ".repeat(1_000);
  const long = line.repeat(30);
  const script: Script = {
    do: [
      { op: "say", text: line, times: 30 },
      { op: "input", prompt: "and now?" },
      { op: "say", text: "the end" },
    ],
  };
  const client = createClient({ urls, token: "dev.acme.ann" });
  const session = await client.createSession();
  const run = await client.start({ session, agent: SCRIPTED, input: { ...script } });
  await eventually(() => run.state.inputs.length === 1);

  const second = createClient({ urls: urls.toReversed(), token: "dev.acme.ann" });
  const shown = second.follow({ session, from: "snapshot" });
  const there = (): RunState | undefined => shown.state.runs[run.run_id];
  await eventually(() => there()?.seq === run.state.seq);
  expect(there()?.messages.map(({ text }) => text.length)).toEqual([long.length]);
  expect(isDeepStrictEqual(there(), run.state)).toBe(true);

  await shown.run(run.run_id).respond(run.state.inputs[0]?.input_id ?? "", "go on");
  const { state } = await run.done;
  await eventually(() => there()?.seq === state.seq);
  // Compared as a whole: the difference of two texts of this size fills a screen a thousand times.
  expect(isDeepStrictEqual(there(), state)).toBe(true);
  expect(state.messages.map(messageText).map((text) => text.length)).toEqual([long.length, 7]);
  client.close();
  second.close();
});
