/** A run from end to end, on this very repository, over real processes. */
import { createClient as createBrowserClient } from "@throughline/client";
import { createClient, type FollowItem } from "@throughline/client/node";
import {
  type DurableEvent,
  initialRunState,
  messageText,
  reduce,
  type RunState,
} from "@throughline/protocol";
import { type Edge, eventually } from "@throughline/testkit";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { startWorld, type World } from "./world.ts";

const REPOSITORY = fileURLToPath(new URL("..", import.meta.url));
const RECONNECT = { baseMs: 50, capMs: 500 };
const TOKEN = "dev.acme.ann";

let world: World;
let one: Edge;
let two: Edge;

beforeAll(async () => {
  world = await startWorld();
  [one, two] = await Promise.all([world.edge(), world.edge()]);
  await world.runtime({ allowedRoots: [REPOSITORY] });
});
afterAll(() => world.dispose());

const stored = (items: readonly FollowItem[]): DurableEvent[] =>
  items.flatMap((item) => {
    if (!("seq" in item)) return [];
    const { cursor: _cursor, ...event } = item;
    return [event];
  });

/** What the worker wrote: the chunks in the log, by message. */
function textOf(log: readonly DurableEvent[]): string[] {
  const texts = new Map<string, string>();
  for (const event of log)
    if (event.type === "model.chunk") {
      const { message_id, offset, text } = event.payload;
      texts.set(message_id, (texts.get(message_id) ?? "").slice(0, offset) + text);
    }
  return [...texts.values()];
}

describe("repo-report on this repository", () => {
  test("[INV2] started through one edge and followed on the other: dense, terminal last, the text that was written", async () => {
    const starter = createClient({ url: one.url, token: TOKEN });
    const follower = createClient({ url: two.url, token: TOKEN });
    const session = await starter.createSession({ title: "spine" });
    const started = await starter.start({
      session,
      agent: "repo-report",
      input: { path: REPOSITORY },
    });
    const handle = follower.follow({ session, run: started.run_id });
    const items: FollowItem[] = [];
    let shown = "";
    for await (const item of handle) {
      items.push(item);
      if (item.type === "model.delta") shown += item.payload.text;
    }
    const log = await world.log(session, started.run_id);
    const events = stored(items);
    expect(events).toEqual(log);
    expect(events.map(({ seq }) => seq)).toEqual(log.map((_, n) => n + 1));
    expect(events.at(-1)).toMatchObject({ type: "run.completed" });
    expect(events.filter(({ type }) => type.startsWith("run.")).map(({ type }) => type)).toEqual([
      "run.queued",
      "run.started",
      "run.completed",
    ]);
    const { status, state } = await handle.done;
    expect(status).toBe("completed");
    expect(state).toEqual(log.reduce<RunState>(reduce, initialRunState(started.run_id)));
    const texts = textOf(log);
    expect(state.messages.map(messageText)).toEqual(texts);
    const report = texts.join("");
    for (const expected of ["TypeScript", "## Recent history", "libs/"])
      expect(report).toContain(expected);
    // It was shown in pieces while it was written, not at its checkpoints alone.
    expect(shown.length).toBeGreaterThan(0);
    expect((await started.done).status).toBe("completed");
    starter.close();
    follower.close();
  });

  test("[CLI10] as a browser brings it, the token is taken by a real edge, and a wrong one is not", async () => {
    const browser = createBrowserClient({ url: one.url, token: TOKEN, webSocket: WebSocket });
    expect(await browser.createSession()).toMatch(/^ses_/);
    browser.close();
    const wrong = createBrowserClient({ url: one.url, token: "no-token", webSocket: WebSocket });
    await expect(wrong.createSession()).rejects.toMatchObject({
      closed: { kind: "refused", code: 4401 },
    });
  });

  test("[INV10] its edge is killed in mid-run: the client goes on at the other one from its cursor", async () => {
    const client = createClient({ urls: [one.url, two.url], token: TOKEN, reconnect: RECONNECT });
    const session = await client.createSession();
    const handle = await client.start({
      session,
      agent: "repo-report",
      input: { path: REPOSITORY, pace_ms: 2 },
    });
    const items: FollowItem[] = [];
    for await (const item of handle) {
      items.push(item);
      if (item.type !== "step.completed" || one.running === false) continue;
      if (handle.state.steps.filter(({ status }) => status === "completed").length === 2)
        await one.kill();
    }
    expect(one.running).toBe(false);
    const log = await world.log(session, handle.run_id);
    expect(stored(items)).toEqual(log);
    expect(log.at(-1)?.type).toBe("run.completed");
    expect(handle.state.messages.map(messageText)).toEqual(textOf(log));
    // Nothing of it was skipped for a snapshot.
    expect(items.filter(({ type }) => type === "gap" || type === "snapshot")).toEqual([]);
    client.close();
    await one.restart();
    await eventually(async () => (await fetch(`${one.adminUrl}/readyz`)).ok);
  });
});
