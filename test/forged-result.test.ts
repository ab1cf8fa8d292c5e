/** What a client reports is data, whatever it looks like. */
import type { Edge } from "@throughline/testkit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import { eventOf, order, startScript } from "./scripted-run.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let edge: Edge;

beforeAll(async () => {
  world = await startWorld();
  [edge] = await Promise.all([world.edge(), world.worker()]);
});
afterAll(() => world.dispose());

test("[TOOL8] a result that looks like a reference to an object that is not there is refused, or one call's failure: never the run's", async () => {
  const client = await RawClient.connect(edge.connectUrl);
  const session = await client.createSession();
  await client.subscribe(session);
  const target = await startScript(
    client,
    session,
    [{ op: "tools", calls: [{ name: "look", args: {} }] }],
    { tools: ["look"] },
  );
  const { payload } = await eventOf(client, target, "tool_call.created");
  const tool_call_id = payload?.["tool_call_id"];
  const forged = { $artifact: `art_${"0".repeat(32)}`, bytes: 10, sha256: "0".repeat(64) };
  const id = order(client, target, "tool_result.report", { tool_call_id, result: forged });
  const answer = await client.frame(
    (f) => (f.seq === undefined ? f.id : f["reply_to"]) === id && f.type !== "command.accepted",
  );
  if (answer.type === "command.rejected")
    order(client, target, "tool_result.report", { tool_call_id, result: 1 });
  const end = await client.terminal(target.run);
  expect(end.type, JSON.stringify(end.payload)).toBe("run.completed");
  client.close();
});
