/** Answers that come as an approval expires. What was made in time stands, what came later does not. */
import { type Edge, natsFilter, type Service, tcpProxy, type TcpProxy } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Frame, RawClient } from "./raw-client.ts";
import { answerInLog, eventOf, order, startScript, type Target } from "./scripted-run.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let edges: Edge[];
let worker: Service;
let proxy: TcpProxy;
/** Whether the worker is to learn of commands only by asking. */
let deaf = false;

const filter = natsFilter(({ subject }) =>
  deaf && subject.startsWith("tl.cl.") ? "drop" : "pass",
);

beforeAll(async () => {
  world = await startWorld();
  proxy = await tcpProxy({ port: world.nats.port });
  proxy.tap(filter.tap);
  edges = await Promise.all([world.edge(), world.edge()]);
  worker = await world.worker({ natsUrl: `nats://${proxy.address}` });
});
afterAll(async () => {
  await world.dispose();
  proxy.close();
});

let client: RawClient;
let other: RawClient;
let session: string;

beforeEach(async () => {
  [client, other] = await Promise.all([
    RawClient.connect(edges[0]?.connectUrl ?? ""),
    RawClient.connect(edges[1]?.connectUrl ?? ""),
  ]);
  session = await client.createSession();
  await client.subscribe(session);
});
afterEach(() => {
  deaf = false;
  client.terminate();
  other.terminate();
});

interface Asked {
  readonly target: Target;
  readonly approval_id: unknown;
  readonly expiresAt: number;
}

async function askedFor(expiresInMs: number): Promise<Asked> {
  const target = await startScript(client, session, [
    { op: "approval", operation: "publish", expiresInMs },
  ]);
  const { payload } = await eventOf(client, target, "approval.requested");
  const expiresAt = payload?.["expires_at"];
  if (typeof expiresAt !== "number") throw new Error("an approval without its end");
  return { target, approval_id: payload?.["approval_id"], expiresAt };
}

/** As late as a timer can be had: the last of the wait is spent looking at the clock. */
async function until(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, ms - Date.now() - 12)));
  while (Date.now() < ms) await new Promise((resolve) => setImmediate(resolve));
}

/** The decision that stands, and what whoever answered was told in the log. */
async function outcome(
  { target }: Asked,
  id: string,
): Promise<{ decision: unknown; answer: Frame; by: unknown }> {
  const resolved = await eventOf(client, target, "approval.resolved");
  const answer = await Promise.race([answerInLog(client, id), client.terminal(target.run)]);
  await client.terminal(target.run);
  const log = await world.log(target.session, target.run);
  expect(log.filter(({ type }) => type === "approval.resolved").length).toBe(1);
  return { decision: resolved.payload?.["decision"], by: resolved.payload?.["by"], answer };
}

describe("[C32] an approval is answered as it expires", () => {
  test("[INV5] accepted before its expiry it stands; made after it, it gets `already_resolved`: 40 times around the moment", async () => {
    const round = async (aheadMs: number, by: RawClient): Promise<"stood" | "expired"> => {
      const asked = await askedFor(600);
      await until(asked.expiresAt - aheadMs);
      const sentAt = Date.now();
      const id = order(by, asked.target, "approval.respond", {
        approval_id: asked.approval_id,
        decision: "allow",
      });
      const accepted = await by.frame((f) => f.id === id && f.seq === undefined);
      const acceptedAt = Date.now();
      const { decision, answer } = await outcome(asked, id);
      if (accepted.type === "command.accepted" && acceptedAt < asked.expiresAt)
        expect(decision, `${asked.expiresAt - acceptedAt} ms before`).toBe("allow");
      if (sentAt > asked.expiresAt)
        expect(decision, `${sentAt - asked.expiresAt} ms after`).toBe("expired");
      if (decision === "allow") {
        expect(answer).toMatchObject({ type: "approval.resolved", payload: { by: "ann" } });
        return "stood";
      }
      // The run ends with the expiry: where it was over before the answer came, its end is the answer.
      if (answer.type === "command.rejected")
        expect(answer.payload).toMatchObject({
          code: "already_resolved",
          current: { decision: "expired" },
        });
      else if (accepted.type === "command.rejected") expect(accepted.code).toBe("run_ended");
      return "expired";
    };
    const ahead = Array.from({ length: 40 }, (_, n) => 12 - n * 0.5);
    const results: string[] = [];
    // Four at a time: they share this process's clock.
    for (let n = 0; n < ahead.length; n += 4)
      results.push(
        ...(await Promise.all(
          ahead.slice(n, n + 4).map((ms, i) => round(ms, i % 2 === 0 ? client : other)),
        )),
      );
    // Both sides of the moment were met.
    expect(new Set(results)).toEqual(new Set(["stood", "expired"]));
  }, 60_000);

  test("the worker's timer fires before it has heard of the answer: it asks first, and the answer stands", async () => {
    // As late as the machine lets it be accepted in time.
    const justInTime = async (aheadMs: number): Promise<{ asked: Asked; id: string }> => {
      const asked = await askedFor(700);
      deaf = true;
      await until(asked.expiresAt - aheadMs);
      const id = order(client, asked.target, "approval.respond", {
        approval_id: asked.approval_id,
        decision: "allow",
      });
      await client.frame((f) => f.id === id && f.type === "command.accepted");
      if (Date.now() < asked.expiresAt) return { asked, id };
      deaf = false;
      await client.terminal(asked.target.run);
      if (aheadMs > 300) throw new Error("no answer is accepted within 300 ms");
      return justInTime(2 * aheadMs);
    };
    const dropped = filter.dropped;
    const { asked, id } = await justInTime(40);
    expect(await outcome(asked, id)).toMatchObject({
      decision: "allow",
      by: "ann",
      answer: { type: "approval.resolved" },
    });
    expect(filter.dropped).toBeGreaterThan(dropped);
  });

  test("while no worker is there: made in time it stands, whenever the next worker comes; made later, the expiry comes first", async () => {
    const intime = await askedFor(1_200);
    const late = await askedFor(1_200);
    await worker.kill();
    const standing = order(client, intime.target, "approval.respond", {
      approval_id: intime.approval_id,
      decision: "allow",
    });
    await client.frame((f) => f.id === standing && f.type === "command.accepted");
    expect(Date.now()).toBeLessThan(intime.expiresAt);
    await until(late.expiresAt + 20);
    const missed = order(other, late.target, "approval.respond", {
      approval_id: late.approval_id,
      decision: "allow",
    });
    await other.frame((f) => f.id === missed && f.type === "command.accepted");
    await worker.restart();
    expect(await outcome(intime, standing)).toMatchObject({ decision: "allow", by: "ann" });
    expect(await outcome(late, missed)).toMatchObject({
      decision: "expired",
      by: undefined,
      answer: {
        type: "command.rejected",
        payload: { code: "already_resolved", current: { decision: "expired" } },
      },
    });
  });

  test("nobody answers: the request's default holds", async () => {
    const target = await startScript(client, session, [
      {
        op: "all",
        do: [
          { op: "approval", operation: "a", expiresInMs: 100, default: "allow" },
          { op: "approval", operation: "b", expiresInMs: 100 },
        ],
      },
    ]);
    const end = await client.terminal(target.run);
    expect(end.payload?.["output"]).toMatchObject([
      [
        { decision: "allow", expired: true },
        { decision: "deny", expired: true },
      ],
    ]);
    const resolved = client.events(target.run).filter((f) => f.type === "approval.resolved");
    expect(resolved.map(({ payload }) => payload)).toMatchObject([
      { decision: "expired" },
      { decision: "expired" },
    ]);
    expect(resolved.filter(({ payload }) => payload?.["by"] !== undefined)).toEqual([]);
  });
});
