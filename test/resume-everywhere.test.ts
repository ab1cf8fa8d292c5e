/** Coming back after any event of a long run gives what a client has that was never away. */
import { initialRunState, reduce, type RunEvent, type RunState } from "@throughline/protocol";
import { type Edge, seededRandom } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Frame, RawClient } from "./raw-client.ts";
import type { Op } from "./script.ts";
import { startScript } from "./scripted-run.ts";
import { startWorld, type World } from "./world.ts";

/** Every seq in the soak run; else every third, from an offset that the seed draws. */
const STRIDE = process.env["SOAK"] ? 1 : 3;
/** Clients that come back at a time. */
const LANES = 6;

let world: World;
let edges: Edge[];
beforeAll(async () => {
  world = await startWorld();
  [edges] = await Promise.all([Promise.all([world.edge(), world.edge()]), world.worker()]);
});
afterAll(() => world.dispose());

/** 25 rounds of a step with text and a tool, between text that streams; some events share a message of the log. */
const LONG: readonly Op[] = Array.from({ length: 25 }, (_, n): Op[] => [
  { op: "stream", words: 5, everyMs: 3 },
  {
    op: "step",
    name: `round ${n}`,
    do: [
      { op: "say", text: `round ${n} `, channel: "reasoning" },
      { op: "tools", calls: [{ name: "double", args: { n } }] },
      { op: "all", do: Array.from({ length: 4 }, (): Op => ({ op: "emit", name: "note" })) },
    ],
  },
]).flat();

/** What the SDK would hold: frames of the run, reduced as they came, onto a snapshot where one was given. */
function held(frames: readonly Frame[], run: string, from: RunState): RunState {
  return frames
    .filter((f) => f.run_id === run && (f.seq !== undefined || f.type === "model.delta"))
    .reduce<RunState>((state, frame) => {
      const { cursor: _, ...event } = frame;
      const known: RunEvent = JSON.parse(JSON.stringify(event));
      return reduce(state, known);
    }, from);
}

async function comeBack(
  edge: Edge,
  session: string,
  run: string,
  payload: Record<string, unknown>,
): Promise<RawClient> {
  const client = await RawClient.connect(edge.connectUrl);
  const answer = await client.subscribe(session, run, payload);
  expect(answer).toMatchObject({ type: "subscribed", recovered: true });
  // The subscription of a run that has ended ends with its terminal event, or with a snapshot that holds it.
  await client.frame(({ type, reason }) => type === "unsubscribed" && reason === "run_ended");
  client.close();
  return client;
}

describe("[INV2] [INV6] a client comes back", () => {
  test("from every seq of a long run, at either node: its state is the uninterrupted client's", async () => {
    const viewer = await RawClient.connect(edges[0]?.connectUrl ?? "");
    const session = await viewer.createSession();
    await viewer.subscribe(session);
    const { run } = await startScript(viewer, session, LONG);
    // Some come back while it still runs, and see its end live.
    const early: Promise<RawClient>[] = [];
    for (const seq of [2, 20, 60, 120]) {
      const { cursor } = await viewer.frame((f) => f.run_id === run && (f.seq ?? 0) >= seq);
      early.push(comeBack(edges[1] ?? edges[0]!, session, run, { cursor }));
    }
    await viewer.terminal(run);
    viewer.close();
    const whole = viewer.events(run);
    expect(whole.length).toBeGreaterThan(200);
    const messages = new Set(whole.map(({ cursor }) => cursor?.split("-")[1]));
    expect(messages.size).toBeLessThan(whole.length - 25);
    const uninterrupted = held(viewer.frames, run, initialRunState(run));
    expect(uninterrupted.status).toBe("completed");
    expect(viewer.frames.some(({ type }) => type === "model.delta")).toBe(true);

    const check = async (client: RawClient): Promise<void> => {
      const rest = client.events(run);
      const first = rest[0]?.seq ?? 0;
      expect(rest.map(({ seq }) => seq)).toEqual(whole.slice(first - 1).map(({ seq }) => seq));
      const before = held(whole.slice(0, first - 1), run, initialRunState(run));
      expect(held(client.frames, run, before)).toEqual(uninterrupted);
    };
    for (const client of await Promise.all(early)) await check(client);

    const offset = STRIDE === 1 ? 0 : seededRandom().int(STRIDE);
    const waiting = whole.slice(0, -1).filter((_, i) => i % STRIDE === offset);
    const lane = async (edge: Edge): Promise<void> => {
      for (let frame = waiting.shift(); frame; frame = waiting.shift()) {
        const { cursor, seq } = frame;
        const client = await comeBack(edge, session, run, { cursor });
        expect(client.events(run)[0]?.seq).toBe((seq ?? 0) + 1);
        await check(client);
      }
    };
    await Promise.all(
      Array.from({ length: LANES }, (_, i) => lane(edges[i % edges.length] ?? edges[0]!)),
    );

    const fresh = await comeBack(edges[1] ?? edges[0]!, session, run, { from: "snapshot" });
    const snapshot = fresh.frames.find(({ type }) => type === "snapshot");
    const state: RunState =
      snapshot === undefined ? initialRunState(run) : JSON.parse(JSON.stringify(snapshot["state"]));
    expect(held(fresh.frames, run, state)).toEqual(uninterrupted);
  }, 120_000);
});
