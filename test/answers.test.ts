/** Requests that several devices answer: one outcome each, and every sender is told. */
import { isTerminal } from "@throughline/protocol";
import { type Edge, eventually } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RawClient } from "./raw-client.ts";
import type { Op } from "./script.ts";
import { answerInLog, eventOf, order, startScript } from "./scripted-run.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let one: Edge;
let two: Edge;

beforeAll(async () => {
  world = await startWorld();
  [one, two] = await Promise.all([world.edge(), world.edge(), world.worker()]);
});
afterAll(() => world.dispose());

/** Two devices of one user, at two edges, both on the session. */
let left: RawClient;
let right: RawClient;
let session: string;

beforeEach(async () => {
  [left, right] = await Promise.all([
    RawClient.connect(one.connectUrl),
    RawClient.connect(two.connectUrl),
  ]);
  session = await left.createSession();
  await Promise.all([left.subscribe(session), right.subscribe(session)]);
});
afterEach(() => {
  left.terminate();
  right.terminate();
});

const guarded = (mark: string): Op => ({
  op: "tools",
  calls: [{ name: "guarded", args: { n: 4, mark } }],
});

describe("[C14] two devices answer one approval at the same moment", () => {
  test("[INV5] one decision stands, the other gets `already_resolved` with it; the tool runs at most once", async () => {
    for (let round = 0; round < 20; round += 1) {
      const target = await startScript(left, session, [
        guarded(`round ${round}`),
        // The run does not end before both were told.
        { op: "input", prompt: "Go on?" },
      ]);
      const [asked] = await Promise.all([
        eventOf(left, target, "approval.requested"),
        eventOf(right, target, "approval.requested"),
      ]);
      const approval_id = asked.payload?.["approval_id"];
      const yes = order(left, target, "approval.respond", { approval_id, decision: "allow" });
      const no = order(right, target, "approval.respond", { approval_id, decision: "deny" });
      const answers = await Promise.all([answerInLog(left, yes), answerInLog(left, no)]);
      const { payload } = await eventOf(left, target, "input.requested");
      order(left, target, "input.respond", { input_id: payload?.["input_id"], content: "yes" });
      const end = await left.terminal(target.run);

      const [resolved, rejected] = answers.toSorted((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
      expect(resolved?.type).toBe("approval.resolved");
      const decision = resolved?.payload?.["decision"];
      expect(decision).toBe(resolved?.["reply_to"] === yes ? "allow" : "deny");
      expect(rejected).toMatchObject({
        type: "command.rejected",
        payload: { code: "already_resolved", current: { decision, by: "ann" } },
      });
      expect(left.events(target.run).filter((f) => f.type === "approval.resolved").length).toBe(1);
      const effects = world.effects().filter((line) => line === `guarded round ${round}`);
      expect(effects.length).toBe(decision === "allow" ? 1 : 0);
      expect(end).toMatchObject({
        type: "run.completed",
        payload: { output: [[decision === "allow" ? { doubled: 8 } : { code: "denied" }], "yes"] },
      });
    }
  });
});

describe("client-side tools", () => {
  const look: Op = { op: "tools", calls: [{ name: "look", args: {} }] };

  test("[INV5] 100 reports of one result race through two edges: one is taken, and the agent goes on once", async () => {
    const target = await startScript(left, session, [look, { op: "say", text: "seen" }], {
      tools: ["look"],
    });
    const [created] = await Promise.all([
      eventOf(left, target, "tool_call.created"),
      eventOf(right, target, "tool_call.created"),
    ]);
    const tool_call_id = created.payload?.["tool_call_id"];
    const ids = Array.from({ length: 100 }, (_, n) =>
      order(n % 2 === 0 ? left : right, target, "tool_result.report", {
        tool_call_id,
        result: { n },
      }),
    );
    const accepted = await Promise.all(
      ids.map((id, n) =>
        (n % 2 === 0 ? left : right).frame((f) => f.id === id && f.seq === undefined),
      ),
    );
    const end = await left.terminal(target.run);
    const log = await world.log(session, target.run);
    const taken = log.filter(({ type }) => type === "tool_call.completed");
    expect(taken.length).toBe(1);
    const winner = ids.indexOf(taken[0]?.reply_to ?? "");
    expect(winner).toBeGreaterThanOrEqual(0);
    expect(taken[0]?.payload).toMatchObject({ tool_call_id, result: { n: winner } });
    expect(end.payload?.["output"]).toEqual([[{ n: winner }], null]);
    expect(log.filter(({ type }) => type === "message.started").length).toBe(1);
    // Who was accepted is answered in the log, or by the run's end; who came later was told at once.
    for (const [n, id] of ids.entries()) {
      if (n === winner) continue;
      const answers = log.filter((event) => event.reply_to === id);
      if (accepted[n]?.type === "command.rejected")
        expect(accepted[n]).toMatchObject({ code: "run_ended" });
      else if (answers.length > 0)
        expect(answers).toMatchObject([
          { type: "command.rejected", payload: { code: "already_resolved" } },
        ]);
      else expect(isTerminal(log.at(-1)?.type ?? "")).toBe(true);
    }
  });

  test("[C16] three at once, reported in any order, one of them twice: each counts once, and the agent goes on after each", async () => {
    for (const names of [
      ["a", "b", "c"],
      ["c", "a", "b"],
      ["b", "c", "a"],
    ]) {
      const calls = ["a", "b", "c"].map((name) => ({ name, args: { name } }));
      const target = await startScript(left, session, [{ op: "tools", calls, tell: true }], {
        tools: ["a", "b", "c"],
      });
      for (const name of names) {
        const call = await eventOf(left, target, "tool_call.created", (p) => p["name"] === name);
        const report = { tool_call_id: call.payload?.["tool_call_id"], result: name };
        const id = order(left, target, "tool_result.report", report);
        order(right, target, "tool_result.report", report, id);
        await eventOf(
          left,
          target,
          "tool_call.completed",
          (p) => p["tool_call_id"] === report.tool_call_id,
        );
        // The others are still open when it has this one.
        await eventOf(left, target, "custom", (p) => p["value"] === name);
        const doubled = await right.frame((f) => f.id === id && f.seq === undefined);
        expect(["command.accepted", "command.rejected"]).toContain(doubled.type);
      }
      const end = await left.terminal(target.run);
      expect(end.payload?.["output"]).toEqual([["a", "b", "c"]]);
      const log = await world.log(session, target.run);
      expect(log.filter(({ type }) => type === "tool_call.completed").length).toBe(3);
      expect(log.filter(({ type }) => type === "command.rejected")).toEqual([]);
    }
  });

  test("several outcomes in one frame, errors among them", async () => {
    const calls = ["a", "b", "c"].map((name) => ({ name, args: {} }));
    const target = await startScript(left, session, [{ op: "tools", calls }], {
      tools: ["a", "b", "c"],
    });
    const call = async (name: string): Promise<unknown> =>
      (await eventOf(left, target, "tool_call.created", (p) => p["name"] === name)).payload?.[
        "tool_call_id"
      ];
    const [a, b, c] = [await call("a"), await call("b"), await call("c")];
    order(left, target, "tool_result.report", { tool_call_id: a, result: 1 });
    await eventOf(left, target, "tool_call.completed");
    const id = order(right, target, "tool_result.report", {
      results: [
        { tool_call_id: b, error: { code: "no_light", message: "it is dark" } },
        { tool_call_id: a, result: "too late" },
        { tool_call_id: c, result: 3 },
      ],
    });
    const end = await left.terminal(target.run);
    expect(end.payload?.["output"]).toEqual([[1, { code: "no_light" }, 3]]);
    const answers = left.events(target.run).filter((f) => f["reply_to"] === id);
    expect(answers.map(({ type }) => type).toSorted()).toEqual([
      "command.rejected",
      "tool_call.completed",
      "tool_call.failed",
    ]);
    expect(answers.find(({ type }) => type === "command.rejected")?.payload).toMatchObject({
      code: "already_resolved",
      current: { tool_call_id: a },
    });
  });

  test("[C32] a report with a lapsed claim is `stale`; whoever claims it then has it", async () => {
    const target = await startScript(left, session, [look], { tools: ["look"] });
    const { payload } = await eventOf(left, target, "tool_call.created");
    const tool_call_id = payload?.["tool_call_id"];
    const claim = (client: RawClient, claim_id: string, lease_ms: number): string =>
      order(client, target, "tool_call.claim", { tool_call_id, claim_id, lease_ms });
    const report = (client: RawClient, claim_id: string): string =>
      order(client, target, "tool_result.report", { tool_call_id, claim_id, result: claim_id });

    expect(await answerInLog(left, claim(left, "first", 1_000))).toMatchObject({
      type: "tool_call.status",
      payload: { status: "claimed", claim_id: "first", by: "ann" },
    });
    expect(await answerInLog(left, claim(right, "second", 60_000))).toMatchObject({
      type: "command.rejected",
      payload: { code: "not_allowed", current: { status: "claimed" } },
    });
    await eventOf(right, target, "tool_call.status", (p) => p["status"] === "pending");
    expect(await answerInLog(left, report(left, "first"))).toMatchObject({
      type: "command.rejected",
      payload: { code: "stale" },
    });
    expect(await answerInLog(left, claim(right, "second", 60_000))).toMatchObject({
      type: "tool_call.status",
      payload: { status: "claimed", claim_id: "second" },
    });
    expect(await answerInLog(left, report(left, "first"))).toMatchObject({
      type: "command.rejected",
      payload: { code: "stale" },
    });
    report(right, "second");
    expect((await left.terminal(target.run)).payload?.["output"]).toEqual([["second"]]);
  });
});

describe("[C27] an approval is open and the edge that showed it dies", () => {
  test("[INV10] the reloaded page has it, and it can be answered from any device, after later messages too", async () => {
    const doomed = await world.edge();
    const page = await RawClient.connect(doomed.connectUrl);
    await page.subscribe(session);
    const target = await startScript(page, session, [
      {
        op: "all",
        do: [
          { op: "approval", operation: "publish" },
          { op: "say", text: "while you think" },
        ],
      },
    ]);
    await eventOf(page, target, "approval.requested");
    await eventOf(page, target, "message.completed");
    await doomed.kill();
    await eventually(() => page.closed);

    const reloaded = await RawClient.connect(two.connectUrl);
    await reloaded.subscribe(session, target.run, { from: "snapshot" });
    await reloaded.frame(({ type }) => type === "caught_up");
    const asked = await eventOf(reloaded, target, "approval.requested");
    const reply = reloaded.send({
      type: "approval.respond",
      session_id: session,
      run_id: target.run,
      reply_to: String(asked["event_id"]),
      payload: {
        approval_id: asked.payload?.["approval_id"],
        decision: "allow",
        args_hash: asked.payload?.["args_hash"],
      },
    });
    const end = await reloaded.terminal(target.run);
    expect(end.payload?.["output"]).toMatchObject([[{ decision: "allow", by: "ann" }, null]]);
    expect((await answerInLog(left, reply)).type).toBe("approval.resolved");
    reloaded.terminate();
  });
});
