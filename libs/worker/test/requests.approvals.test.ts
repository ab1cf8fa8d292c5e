import { type Broker } from "@throughline/broker";
import { eventually, natsFilter, type NatsServer, tcpProxy } from "@throughline/testkit";
import { describe, expect, it, vi } from "vitest";
import { type Agent, type ApprovalRequest, defineAgent } from "../src/index.ts";
import {
  ended,
  logOf,
  reduced,
  startRun,
  startWorker,
  typesOf,
  unique,
  workshop,
} from "./harness.ts";
import {
  answersTo,
  inShort,
  ofType,
  openApproval,
  send,
  stateOfRun,
  untilState,
  verdict,
} from "./requests-harness.ts";

let nats: NatsServer;
let broker: Broker;
const hosted = workshop((made) => ({ nats, broker } = made));

/** Its output is what was decided. */
function asking(request: Partial<ApprovalRequest> = {}): Agent {
  return defineAgent({
    name: unique("asks"),
    run: (ctx) => ctx.approval({ operation: "deploy", description: "to production", ...request }),
  });
}

const allow = (approval_id: string): unknown => ({ approval_id, decision: "allow" });
const deny = (approval_id: string): unknown => ({ approval_id, decision: "deny" });

describe("an approval", () => {
  it("[APR1][REQ4] is asked for with what is to be known of it, and the run waits for it", async () => {
    const agent = asking({ risk: "high", args: { b: 1, a: 2 } });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const before = Date.now();
    const open = await openApproval(broker, ref);
    expect(open).toMatchObject({
      operation: "deploy",
      description: "to production",
      risk_level: "high",
      default: "deny",
    });
    expect(open.expires_at).toBeGreaterThan(before + 14 * 60_000);
    expect(open.expires_at).toBeLessThan(before + 16 * 60_000);
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    await send(
      broker,
      ref,
      "approval.respond",
      { ...(allow(open.approval_id) as object), reason: "go" },
      {
        user: "bob",
        reply_to: open.event_id,
      },
    );
    const events = await ended(broker, ref);
    expect(typesOf(events)).toEqual([
      "run.queued",
      "run.started",
      "approval.requested",
      "run.status",
      "approval.resolved",
      "run.status",
      "run.completed",
    ]);
    expect(reduced(ref, events).output).toEqual({
      decision: "allow",
      expired: false,
      by: "bob",
      reason: "go",
    });
  });

  it("[REQ2][C14] of two devices that answer in the same millisecond one decides, the other is told what", async () => {
    const agent = asking();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    const at = Date.now();
    const [yes, no] = await Promise.all([
      send(broker, ref, "approval.respond", allow(approval_id), { user: "ann", at }),
      send(broker, ref, "approval.respond", deny(approval_id), { user: "bob", at }),
    ]);
    const events = await ended(broker, ref);
    const verdicts = events.filter((e) => e.reply_to === yes || e.reply_to === no);
    expect(verdicts.map(inShort)).toEqual(["approval.resolved", "already_resolved"]);
    const [resolved] = ofType(events, "approval.resolved");
    const { decision, by } = resolved?.payload ?? {};
    expect(verdicts[1]?.payload).toMatchObject({ current: { approval_id, decision, by } });
    expect(reduced(ref, events).output).toMatchObject({ decision, by });
  });

  it("[REQ2] a hundred answers that race have one effect, and each its own verdict", async () => {
    const agent = asking();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    const ids = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        send(broker, ref, "approval.respond", (i % 2 ? allow : deny)(approval_id), {
          user: `user ${i}`,
        }),
      ),
    );
    const events = await ended(broker, ref);
    // Those that come after the run's end are answered by that.
    const verdicts = events.filter((event) => ids.includes(event.reply_to ?? "")).map(inShort);
    expect(verdicts.filter((one) => one === "approval.resolved")).toHaveLength(1);
    expect(new Set(verdicts.slice(1))).toEqual(new Set(["already_resolved"]));
  });

  it("[APR2] is bound to its request: a stale answer changes nothing", async () => {
    const agent = asking({ args: { amount: 5 } });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id, args_hash, event_id } = await openApproval(broker, ref);
    const respond = async (payload: object, reply_to?: string): Promise<string> =>
      inShort(
        await verdict(
          broker,
          ref,
          "approval.respond",
          { approval_id, decision: "allow", ...payload },
          reply_to === undefined ? {} : { reply_to },
        ),
      );
    expect(await respond({ args_hash: "of others" })).toBe("stale");
    expect(await respond({ args_hash }, `${ref.run}.1`)).toBe("stale");
    expect(await respond({ approval_id: "apr_none" })).toBe("not_found");
    expect((await stateOfRun(broker, ref)).approvals[0]?.status).toBe("open");
    expect(await respond({ args_hash }, event_id)).toBe("approval.resolved");
    await ended(broker, ref);
  });
});

describe("an approval that nobody answers", () => {
  it.each(["deny", "allow"] as const)(
    "[APR3] expires, and its default holds: %s",
    async (fallback) => {
      const agent = asking({ expiresInMs: 200, default: fallback });
      await hosted(agent);
      const ref = await startRun(broker, agent.name);
      const events = await ended(broker, ref);
      expect(reduced(ref, events).output).toEqual({ decision: fallback, expired: true });
      const [resolved] = ofType(events, "approval.resolved");
      expect(resolved?.payload).toEqual({
        approval_id: reduced(ref, events).approvals[0]?.approval_id,
        decision: "expired",
      });
      expect(resolved).not.toHaveProperty("reply_to");
      const [requested] = ofType(events, "approval.requested");
      expect(resolved?.ts).toBeGreaterThan(requested?.payload.expires_at ?? Infinity);
    },
  );

  it("[APR3] does not expire at once for being far off: timers end at 24.8 days", async () => {
    const agent = asking({ expiresInMs: 40 * 24 * 3_600_000 });
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    // Many turns of the event loop, in which an overflown timer would have fired.
    for (let i = 0; i < 20; i++) await stateOfRun(broker, ref);
    expect((await openApproval(broker, ref)).approval_id).toBe(approval_id);
    await send(broker, ref, "approval.respond", allow(approval_id));
    expect(reduced(ref, await ended(broker, ref)).output).toMatchObject({ expired: false });
  });

  it("[APR3][C32] an answer that was accepted in its last millisecond stands, though nobody had heard of it", async () => {
    const agent = asking({ expiresInMs: 400 });
    // The worker's live copies of commands are lost: only the drain before the expiry finds the answer.
    const proxy = await tcpProxy({ port: nats.port });
    const filter = natsFilter((m) => (m.subject.startsWith("tl.cl.") ? "drop" : "pass"));
    proxy.tap(filter.tap);
    const worker = await startWorker(proxy.address, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id, expires_at } = await openApproval(broker, ref);
    await eventually(() => Date.now() >= expires_at - 20, { everyMs: 1 });
    const id = await send(broker, ref, "approval.respond", allow(approval_id), { at: expires_at });
    const events = await ended(broker, ref);
    expect(filter.dropped).toBeGreaterThan(0);
    expect(reduced(ref, events).output).toMatchObject({ decision: "allow", expired: false });
    expect(events.filter((event) => event.reply_to === id).map(inShort)).toEqual([
      "approval.resolved",
    ]);
    await worker.stop();
    await worker.die();
    proxy.close();
  });

  it("[REQ3][APR4][C32] answers that race with the expiry get one outcome, and each sender is told it", async () => {
    // The run goes on after the decision, so that every answer is judged.
    const agent = defineAgent({
      name: unique("races"),
      run: async (ctx) => {
        const decided = await ctx.approval({
          operation: "deploy",
          description: "now",
          expiresInMs: 1_000,
        });
        await ctx.ask({ prompt: "more?" });
        return decided;
      },
    });
    await hosted(agent);
    const refs = await Promise.all(Array.from({ length: 12 }, () => startRun(broker, agent.name)));
    const outcomes = await Promise.all(
      refs.map(async (ref, index) => {
        const { approval_id, expires_at } = await openApproval(broker, ref);
        // From 120 ms before to 210 ms after: both sides of the expiry, and of its grace.
        const from = expires_at - 120 + index * 30;
        await eventually(() => Date.now() >= from, { everyMs: 1 });
        const at = Date.now();
        const ids = await Promise.all(
          ["ann", "bob"].map((user) =>
            send(broker, ref, "approval.respond", allow(approval_id), { user, at }),
          ),
        );
        const verdicts = (await Promise.all(ids.map((id) => answersTo(broker, ref, id)))).flat();
        const [one, ...others] = ofType(await logOf(broker, ref), "approval.resolved");
        expect(others).toEqual([]);
        const stands = at <= expires_at;
        // What was made in time and stored after the grace may come too late; never the other way round.
        if (!stands) expect(one?.payload.decision).toBe("expired");
        const told = verdicts.filter((event) => event.type === "command.rejected");
        expect(told).toHaveLength(one?.payload.decision === "expired" ? 2 : 1);
        for (const event of told) {
          expect(event.payload).toMatchObject({
            code: "already_resolved",
            current: { decision: one?.payload.decision },
          });
        }
        const { input_id } = (await stateOfRun(broker, ref)).inputs[0] ?? {};
        await send(broker, ref, "input.respond", { input_id, content: "no" });
        await ended(broker, ref);
        return { decision: one?.payload.decision, early: at <= expires_at - 80 };
      }),
    );
    // On a busy machine the first ones may have been late as well.
    const early = outcomes.filter((outcome) => outcome.early);
    expect(early.map((outcome) => outcome.decision)).toEqual(early.map(() => "allow"));
    expect(outcomes.at(-1)).toMatchObject({ decision: "expired" });
  });
});

describe("an approval whose worker dies", () => {
  it("[REQ1][REQ4] is asked for once, and its answer is found by whoever has the run", async () => {
    const agent = asking();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    await first.die();
    // Nobody has the run when it is answered.
    await send(broker, ref, "approval.respond", allow(approval_id), { user: "bob" });
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(ofType(events, "approval.requested")).toHaveLength(1);
    expect(reduced(ref, events).output).toMatchObject({ decision: "allow", by: "bob" });
    // It waited, and waits no more: told once each.
    expect(ofType(events, "run.status").map((event) => event.payload.status)).toEqual([
      "waiting_approval",
      "running",
    ]);
  });

  it("[REQ1] and is not answered yet waits on in its successor", async () => {
    const agent = asking();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await untilState(broker, ref, (state) => state.status === "waiting_approval");
    await first.die();
    await hosted(agent);
    await untilState(broker, ref, (state) => state.attempt === 2);
    await send(broker, ref, "approval.respond", allow(approval_id));
    const events = await ended(broker, ref);
    expect(ofType(events, "approval.requested")).toHaveLength(1);
    expect(ofType(events, "run.status").map((event) => event.payload.status)).toEqual([
      "waiting_approval",
      "running",
    ]);
  });

  it("[APR5] and expires while nobody has the run is expired by the next worker", async () => {
    const agent = asking({ expiresInMs: 500, default: "allow" });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { expires_at } = await openApproval(broker, ref);
    await first.die();
    await eventually(() => Date.now() > expires_at + 200);
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual({ decision: "allow", expired: true });
  });

  it("[APR4][APR5] an answer made too late, while nobody has the run, comes too late", async () => {
    const agent = asking({ expiresInMs: 500 });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id, expires_at } = await openApproval(broker, ref);
    await first.die();
    await eventually(() => Date.now() > expires_at);
    const late = await send(broker, ref, "approval.respond", allow(approval_id));
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toEqual({ decision: "deny", expired: true });
    expect(events.filter((event) => event.reply_to === late)).toMatchObject([
      { payload: { code: "already_resolved", current: { decision: "expired" } } },
    ]);
    expect(ofType(events, "approval.resolved")).toHaveLength(1);
  });

  it("[APR4][APR5] one that was made in time stands, though it is judged long after the expiry", async () => {
    const agent = asking({ expiresInMs: 500 });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id, expires_at } = await openApproval(broker, ref);
    await first.die();
    const id = await send(broker, ref, "approval.respond", allow(approval_id));
    await eventually(() => Date.now() > expires_at + 200);
    await hosted(agent);
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toMatchObject({ decision: "allow", expired: false });
    expect(events.filter((event) => event.reply_to === id).map(inShort)).toEqual([
      "approval.resolved",
    ]);
  });

  it("[APR6] is not taken for another one: who asks about other arguments the next time asks anew", async () => {
    const agent = defineAgent({
      name: unique("fickle"),
      run: (ctx) =>
        ctx.approval({ operation: "pay", description: "a bill", args: { amount: ctx.attempt } }),
    });
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await first.die();
    await send(broker, ref, "approval.respond", allow(approval_id));
    await hosted(agent);
    const other = await untilState(broker, ref, (state) =>
      state.approvals.find((one) => one.approval_id !== approval_id),
    );
    await send(broker, ref, "approval.respond", deny(other.approval_id));
    expect(reduced(ref, await ended(broker, ref)).output).toMatchObject({ decision: "deny" });
  });
});

describe("an approval that is waited for in a shutdown", () => {
  it("[FIN5][REQ1] is waited for by the next worker, at once", async () => {
    const agent = asking();
    const first = await startWorker(nats.url, [agent]);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await hosted(agent);
    const from = performance.now();
    await first.stop();
    expect(performance.now() - from).toBeLessThan(5_000);
    await untilState(broker, ref, (state) => state.attempt === 2);
    await send(broker, ref, "approval.respond", allow(approval_id));
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toMatchObject({ decision: "allow" });
    expect(ofType(events, "approval.requested")).toHaveLength(1);
  });
});

describe("an approval that is not waited for to its end", () => {
  it("[APR7] is closed by an interrupt, and that is its answer when the agent is executed again", async () => {
    const agent = asking();
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    await verdict(broker, ref, "run.interrupt", {}, { user: "bob" });
    const late = await verdict(broker, ref, "approval.respond", allow(approval_id));
    expect(late.payload).toMatchObject({
      code: "already_resolved",
      current: { decision: "deny", reason: "interrupted" },
    });
    await send(broker, ref, "run.resume", {});
    const events = await ended(broker, ref);
    expect(reduced(ref, events).output).toMatchObject({
      decision: "deny",
      expired: false,
      reason: "interrupted",
    });
    expect(ofType(events, "approval.requested")).toHaveLength(1);
  });

  it("[APR3] lets go of its timer", async () => {
    const clear = vi.spyOn(globalThis, "clearTimeout");
    const agent = asking({ expiresInMs: 123_456_789 });
    const set = vi.spyOn(globalThis, "setTimeout");
    await hosted(agent);
    const ref = await startRun(broker, agent.name);
    const { approval_id } = await openApproval(broker, ref);
    const armed = await eventually(() => {
      const index = set.mock.calls.findIndex(([, ms]) => Number(ms) > 123_000_000);
      return index === -1 ? undefined : set.mock.results[index]?.value;
    });
    await send(broker, ref, "approval.respond", allow(approval_id));
    await ended(broker, ref);
    expect(clear).toHaveBeenCalledWith(armed);
    vi.restoreAllMocks();
  });
});
