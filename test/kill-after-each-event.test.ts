import { type Edge, removeDir, seededRandom, type Service, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isTerminal, RawClient } from "./raw-client.ts";
import { startWorld, type World } from "./world.ts";

/** Every event in the soak run; else every fifth, from an offset that the seed draws. */
const STRIDE = process.env["SOAK"] ? 1 : 5;

let world: World;
let edge: Edge;
let folder: string;
const workers: Service[] = [];

beforeAll(async () => {
  folder = tempDir("each-event");
  writeFileSync(join(folder, "a.ts"), "export const a = 1; // TODO one\n".repeat(5));
  world = await startWorld();
  edge = await world.edge();
  await addWorker();
  await addWorker();
});
afterAll(async () => {
  await world.dispose();
  removeDir(folder);
});

async function addWorker(): Promise<void> {
  workers.push(await world.runtime({ allowedRoots: [folder], ackWaitMs: 1_000 }));
}

/** Kills the worker that has the run as soon as event `seq` was seen; 0: as soon as the start was accepted. */
async function killedAfter(client: RawClient, session: string, seq: number): Promise<number> {
  const run = await client.start(session, "repo-report", { path: folder, pace_ms: 4 });
  const subscribed = await client.subscribe(session, run);
  let victim: Service | undefined;
  if (seq === 0) victim = workers[0];
  else {
    const seen = await client.frame(
      (f) => f.run_id === run && ((f.seq ?? 0) >= Math.max(2, seq) || isTerminal(f.type)),
    );
    // How many checkpoints a text has depends on how fast it came: this run is the shorter one.
    if (isTerminal(seen.type)) return client.events(run).length;
    const begun = client.events(run).find((f) => f.type === "run.started");
    victim = workers.find((w) => String(begun?.payload?.["worker"]).startsWith(`${w.nodeId}-`));
  }
  if (!victim) throw new Error("nobody has the run");
  workers.splice(workers.indexOf(victim), 1);
  await victim.kill();
  const [end] = await Promise.all([client.terminal(run), addWorker()]);
  expect(end.type).toBe("run.completed");
  const log = await world.log(session, run);
  expect(log.map((e) => e.seq)).toEqual(log.map((_, i) => i + 1));
  expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
  expect(log.filter((e) => isTerminal(e.type)).length).toBe(1);
  // Each step's effect once: a completed step is not done again by the successor.
  const completed = log.flatMap((e) => (e.type === "step.completed" ? [e.payload.step_id] : []));
  expect(new Set(completed).size).toBe(completed.length);
  const names = log.flatMap((e) => (e.type === "step.started" ? [e.payload.name] : []));
  const cut = log.filter((e) => e.type === "step.superseded").length;
  expect(names.length - cut).toBe(new Set(names).size);
  await client.ask({
    type: "unsubscribe",
    payload: { subscription_id: subscribed.subscription_id },
  });
  return log.length;
}

test("[C18] [INV4] the worker is killed after the start, and after each event in turn: the run ends well, the next is not blocked", async () => {
  const client = await RawClient.connect(edge.connectUrl);
  const session = await client.createSession();
  let length = await killedAfter(client, session, 0);
  const offset = STRIDE === 1 ? 0 : seededRandom().int(STRIDE);
  for (let seq = 2 + offset; seq < length; seq += STRIDE) {
    length = await killedAfter(client, session, seq).catch((cause: unknown) => {
      throw new Error(`killed after event ${seq}`, { cause });
    });
  }
  client.close();
}, 300_000);
