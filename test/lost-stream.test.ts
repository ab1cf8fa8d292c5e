import { type Edge, removeDir, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import { SHARDS, startWorld, type World } from "./world.ts";

let world: World;
let edge: Edge;
let folder: string;

beforeAll(async () => {
  folder = tempDir("lost-stream");
  writeFileSync(join(folder, "a.ts"), "export const a = 1;\n".repeat(20));
  world = await startWorld();
  edge = await world.edge();
  await world.runtime({ allowedRoots: [folder] });
});
afterAll(async () => {
  await world.dispose();
  removeDir(folder);
});

/** Deletes the event streams and makes them anew, empty, as an operator restoring from nothing would. */
async function loseEvents(): Promise<void> {
  for (let shard = 0; shard < SHARDS; shard += 1) {
    const { config } = await world.broker.jsm.streams.info(`TL_EV_${shard}`);
    await world.broker.jsm.streams.delete(`TL_EV_${shard}`);
    await world.broker.jsm.streams.add(config);
  }
}

describe("[C06] the stream was deleted and made anew", () => {
  test("[INV8] an old cursor gets the snapshot or the start, said openly, and never a stranger's event", async () => {
    const first = await RawClient.connect(edge.connectUrl);
    const session = await first.createSession();
    const run = await first.start(session, "repo-report", { path: folder });
    await first.subscribe(session, run);
    const end = await first.terminal(run);
    const middle = first.events(run)[3]?.cursor;
    first.close();
    await loseEvents();
    const fresh = await world.edge();

    // Nothing of the run is stored any more but its snapshot.
    for (const cursor of [middle, end.cursor]) {
      const client = await RawClient.connect(fresh.connectUrl);
      const answer = await client.subscribe(session, run, { cursor });
      expect(answer).toMatchObject({ type: "subscribed", recovered: false, mode: "snapshot" });
      const snapshot = await client.frame((f) => f.type === "snapshot");
      expect(snapshot).toMatchObject({ run_id: run, state: { status: "completed" } });
      await client.frame((f) => f.type === "caught_up");
      expect(client.events(run)).toEqual([]);
      client.close();
    }

    // Other runs now fill the same stream positions.
    const other = await RawClient.connect(fresh.connectUrl);
    const runs: string[] = [];
    for (let i = 0; i < 3; i += 1) {
      const next = await other.start(session, "repo-report", { path: folder });
      await other.subscribe(session, next);
      await other.terminal(next);
      runs.push(next);
    }
    other.close();
    for (const cursor of [middle, end.cursor]) {
      const client = await RawClient.connect(fresh.connectUrl);
      const answer = await client.subscribe(session, run, { cursor });
      expect(answer).toMatchObject({ type: "subscribed", recovered: false });
      await client.frame((f) => f.type === "caught_up");
      expect(client.frames.filter((f) => runs.includes(f.run_id ?? ""))).toEqual([]);
      client.close();
      const whole = await RawClient.connect(fresh.connectUrl);
      const said = await whole.subscribe(session, undefined, { cursor });
      expect(said).toMatchObject({ type: "subscribed", recovered: false });
      await whole.frame((f) => f.type === "caught_up");
      whole.close();
    }
  });

  test("[INV8] an edge that was following when it happened tells its clients and does not go silent", async () => {
    const client = await RawClient.connect(edge.connectUrl);
    const session = await client.createSession();
    const before = await client.start(session, "repo-report", { path: folder });
    await client.subscribe(session, before);
    await client.terminal(before);
    await loseEvents();
    // A command id that was never used: its run's first event lies far below the old positions.
    const run = await client.start(session, "repo-report", { path: folder });
    const answer = await client.subscribe(session, run);
    expect(answer).toMatchObject({ type: "subscribed" });
    await client.terminal(run);
    const log = await world.log(session, run);
    expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
    expect(log[0]).toMatchObject({ session_id: session, type: "run.queued" });
    client.close();
  });
});
