import {
  initialRunState,
  messageText,
  reduce,
  type RunEvent,
  type RunState,
} from "@throughline/protocol";
import { type Edge, eventually, removeDir, type Service, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Frame, isTerminal, RawClient } from "./raw-client.ts";
import { startWorld, type World } from "./world.ts";

const ACK_WAIT_MS = 1_200;

let world: World;
let edge: Edge;
let folder: string;
let recording: string;
let workers: Service[] = [];

beforeAll(async () => {
  folder = tempDir("takeover");
  writeFileSync(join(folder, "a.ts"), "export const a = 1; // TODO one\n".repeat(40));
  writeFileSync(join(folder, "b.md"), "# B\n\nText.\n".repeat(30));
  recording = join(folder, "stream.jsonl");
  writeFileSync(recording, recordedStream(200));
  world = await startWorld();
  edge = await world.edge();
});
afterEach(async () => {
  await Promise.all(workers.map((w) => w.dispose()));
  workers = [];
});
afterAll(async () => {
  await world.dispose();
  removeDir(folder);
});

/** Chunks of a chat completion as a provider streams them. */
function recordedStream(words: number): string {
  const chunk = (delta: object, finish: string | null): string =>
    JSON.stringify({
      id: "rec",
      object: "chat.completion.chunk",
      created: 1_764_657_993,
      model: "recorded",
      choices: [{ index: 0, delta, finish_reason: finish }],
    });
  const lines = [chunk({ role: "assistant", content: "" }, null)];
  for (let i = 0; i < words; i += 1) lines.push(chunk({ content: ` word${i}` }, null));
  lines.push(chunk({}, "stop"));
  return lines.join("\n");
}

async function worker(): Promise<Service> {
  const one = await world.runtime({ allowedRoots: [folder], ackWaitMs: ACK_WAIT_MS });
  workers.push(one);
  return one;
}

/** The state a client of the SDK would hold: every frame of the run reduced as it came. */
function reduced(frames: readonly Frame[], run: string): RunState {
  return frames
    .filter((f) => f.run_id === run && (f.seq !== undefined || f.type === "model.delta"))
    .reduce((state, f) => reduce(state, f as unknown as RunEvent), initialRunState(run));
}

function texts(state: RunState): string[] {
  return state.messages.filter((m) => m.status === "completed").map(messageText);
}

function dense(events: readonly { seq?: number }[]): void {
  expect(events.map((e) => e.seq)).toEqual(events.map((_, i) => i + 1));
}

async function following(
  agent: string,
  input: unknown,
): Promise<{ client: RawClient; session: string; run: string }> {
  const client = await RawClient.connect(edge.connectUrl);
  const session = await client.createSession();
  const run = await client.start(session, agent, input);
  await client.subscribe(session, run);
  return { client, session, run };
}

/** Kills or pauses the worker that holds the run. */
function holder(client: RawClient, run: string): Service {
  const begun = client
    .events(run)
    .findLast((f) => f.type === "run.started" || f.type === "run.resumed");
  const id = begun?.payload?.["worker"];
  const found = workers.find((w) => String(id).startsWith(`${w.nodeId}-`));
  if (!found)
    throw new Error(`no worker ${String(id)} among ${workers.map((w) => w.nodeId).join()}`);
  return found;
}

describe("a worker dies", () => {
  test("[INV3] [INV4] [C18] kill -9 in mid-run: another takes over, completed steps are not run again", async () => {
    await worker();
    await worker();
    const { client, session, run } = await following("repo-report", { path: folder, pace_ms: 15 });
    await client.frame((f) => f.run_id === run && f.type === "step.completed" && f.seq! > 10);
    const done = client
      .events(run)
      .filter((f) => f.type === "step.completed")
      .map((f) => f.step_id);
    await holder(client, run).kill();
    await client.terminal(run);
    const log = await world.log(session, run);
    dense(log);
    dense(client.events(run));
    expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
    expect(log.filter((e) => isTerminal(e.type)).length).toBe(1);
    expect(log.at(-1)?.type).toBe("run.completed");
    expect(log.some((e) => e.type === "run.resumed" && e.payload.attempt === 2)).toBe(true);
    for (const step of done) {
      expect(log.filter((e) => e.type === "step.started" && e.step_id === step).length).toBe(1);
    }
    client.close();
  });

  test("[C18] [INV4] the start is accepted while no worker is there: it runs when one comes", async () => {
    const { client, run } = await following("repo-report", { path: folder });
    expect(client.events(run).map((f) => f.type)).toEqual(["run.queued"]);
    await worker();
    expect((await client.terminal(run)).type).toBe("run.completed");
    client.close();
  });

  test("[C26] [INV6] text that was shown live and never stored is replaced, not kept", async () => {
    await worker();
    await worker();
    const { client, session, run } = await following("replay", { file: recording, speed: 1 });
    const shown = (): string => reduced(client.frames, run).messages.map(messageText).join("");
    // Shown, and not yet in any chunk.
    await eventually(() => {
      const state = reduced(client.frames, run);
      return state.messages.some((m) => m.text.length > 0 && m.live.length > 20);
    });
    await holder(client, run).kill();
    const before = shown();
    expect(before.length).toBeGreaterThan(20);
    await client.terminal(run);
    const log = await world.log(session, run);
    dense(log);
    const stored = log.reduce<RunState>((s, e) => reduce(s, e), initialRunState(run));
    expect(texts(reduced(client.frames, run))).toEqual(texts(stored));
    const words = Array.from({ length: 200 }, (_, i) => ` word${i}`).join("");
    expect(texts(stored).at(-1)).toBe(words);
    client.close();
  }, 40_000);

  test("[INV3] [C19] frozen past its lease, another takes over; thawed, its append is refused and no client sees it", async () => {
    await worker();
    await worker();
    const { client, session, run } = await following("repo-report", { path: folder, pace_ms: 25 });
    await client.frame((f) => f.run_id === run && f.type === "step.completed");
    const frozen = holder(client, run);
    await frozen.pause();
    await client.frame((f) => f.run_id === run && f.type === "run.resumed");
    frozen.resume();
    await client.terminal(run);
    const log = await world.log(session, run);
    dense(log);
    dense(client.events(run));
    expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
    expect(log.filter((e) => isTerminal(e.type)).length).toBe(1);
    // Deltas of the frozen attempt are not shown beside its successor's.
    const resumedAt = client.frames.findIndex((f) => f.run_id === run && f.type === "run.resumed");
    const stale = client.frames
      .slice(resumedAt)
      .filter((f) => f.run_id === run && f.seq === undefined && f.attempt === 1);
    expect(stale).toEqual([]);
    expect(texts(reduced(client.frames, run)).length).toBeGreaterThan(0);
    client.close();
    // Losing a run costs the worker nothing else.
    expect(frozen.running, frozen.logs()).toBe(true);
  });
});

describe("NATS goes away", () => {
  test("[INV3] an outage longer than the lease redelivers live runs: each stays with its worker", async () => {
    await worker();
    await worker();
    const follows = await Promise.all(
      Array.from({ length: 4 }, () => following("replay", { file: recording, speed: 1 })),
    );
    await Promise.all(
      follows.map(({ client, run }) =>
        client.frame((f) => f.run_id === run && f.type === "model.chunk"),
      ),
    );
    await world.nats.kill();
    await new Promise((resolve) => setTimeout(resolve, ACK_WAIT_MS * 2));
    await world.nats.restart();
    for (const { client, session, run } of follows) {
      await client.terminal(run, 60_000);
      const log = await world.log(session, run);
      dense(log);
      expect(client.events(run).map((f) => f.event_id)).toEqual(log.map((e) => e.event_id));
      expect(log.filter((e) => e.type === "run.resumed")).toEqual([]);
      expect(log.at(-1)?.type).toBe("run.completed");
      client.close();
    }
  }, 90_000);
});

describe("a run that nobody finishes", () => {
  test("[C31] [INV4] an agent that nobody offers: agent_unavailable after the queue's time", async () => {
    const impatient = await world.edge({ env: { TL_DEADLINE_MS: "60000" } });
    workers.push(
      await world.runtime({ ackWaitMs: ACK_WAIT_MS, env: { TL_QUEUE_TIMEOUT_MS: "1500" } }),
    );
    const client = await RawClient.connect(impatient.connectUrl);
    const session = await client.createSession();
    const run = await client.start(session, "nobody-offers-this", {});
    await client.subscribe(session, run);
    const end = await client.terminal(run);
    expect(end.type).toBe("run.failed");
    expect(end.payload?.["code"]).toBe("agent_unavailable");
    dense(client.events(run));
    client.close();
  });

  test("[C31] [INV4] its deadline passes while it runs, and after its worker died: failed, with the reason", async () => {
    const strict = await world.edge({ env: { TL_DEADLINE_MS: "5000" } });
    await worker();
    const client = await RawClient.connect(strict.connectUrl);
    const session = await client.createSession();
    const slow = { file: recording, speed: 0.05 };
    const alive = await client.start(session, "replay", slow);
    await client.subscribe(session, alive);
    const end = await client.terminal(alive, 20_000);
    expect(end.type).toBe("run.failed");
    expect(end.payload?.["code"]).toBe("deadline");

    const orphan = await client.start(session, "replay", slow);
    await client.subscribe(session, orphan);
    await client.frame((f) => f.run_id === orphan && f.type === "run.started");
    await Promise.all(workers.splice(0).map((w) => w.kill()));
    // A worker that offers other agents only would do: the sweep is every worker's.
    await worker();
    const orphanEnd = await client.terminal(orphan, 30_000);
    expect(orphanEnd.type).toBe("run.failed");
    dense(await world.log(session, orphan));
    client.close();
  }, 60_000);
});
