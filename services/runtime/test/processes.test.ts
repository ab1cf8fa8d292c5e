/** Real processes, killed and frozen. Needs the build (testkit's launcher says so). */
import { type Broker, openBroker, type RunRef } from "@throughline/broker";
import type { DurableEvent } from "@throughline/protocol";
import {
  eventually,
  type NatsServer,
  removeDir,
  type Service,
  startNats,
  startRuntime,
  tempDir,
} from "@throughline/testkit";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ended, logOf, shownText, startRun, stateOf } from "./follow.ts";

const ACK_WAIT_MS = 1_000;

let nats: NatsServer;
let broker: Broker;
let folder: string;
const running: Service[] = [];

beforeAll(async () => {
  folder = tempDir("repo");
  for (let i = 0; i < 30; i++) {
    mkdirSync(join(folder, `part${i}`), { recursive: true });
    writeFileSync(join(folder, `part${i}`, "code.ts"), `// TODO number ${i}\n`.repeat(i + 1));
  }
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 4 });
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((service) => service.dispose()));
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
  removeDir(folder);
});

async function runtime(env: Record<string, string> = {}): Promise<Service> {
  const service = await startRuntime({
    natsUrl: nats.url,
    allowedRoots: [folder],
    ackWaitMs: ACK_WAIT_MS,
    env,
  });
  running.push(service);
  return service;
}

/** The report in its own words, from a run that nothing happened to. */
async function undisturbed(): Promise<string> {
  return shownText(
    (await ended(broker, await startRun(broker, "repo-report", { path: folder }))).state,
  );
}

async function reached(
  ref: RunRef,
  is: (events: readonly DurableEvent[]) => boolean,
): Promise<DurableEvent[]> {
  return eventually(
    async () => {
      const events = await logOf(broker, ref);
      return is(events) ? events : undefined;
    },
    { timeoutMs: 15_000 },
  );
}

const completedSteps = (events: readonly DurableEvent[]): string[] =>
  stateOf({ tenant: "", session: "", run: events[0]?.run_id ?? "" }, events)
    .steps.filter((step) => step.status === "completed")
    .map((step) => step.name);

describe("runtime processes", () => {
  it("[PROC2][C18][C26] kill -9 in mid-run: another takes over, completed steps are not run again, the end comes once", async () => {
    const first = await runtime();
    const expected = await undisturbed();
    const ref = await startRun(broker, "repo-report", { path: folder, pace_ms: 10 });
    const before = await reached(ref, (events) => completedSteps(events).length >= 2);
    await first.kill();
    await runtime();
    const { events, state } = await ended(broker, ref);
    expect(state.attempt).toBe(2);
    expect(shownText(state)).toBe(expected);
    const started = events
      .filter((event) => event.type === "step.started")
      .map((event) => event.payload.name);
    for (const name of completedSteps(before)) {
      expect(
        started.filter((one) => one === name),
        name,
      ).toHaveLength(1);
    }
    expect(completedSteps(events)).toHaveLength(6);
  });

  it("[PROC3][C19] frozen past its lease and woken, it is fenced, and goes on with other work", async () => {
    const first = await runtime();
    const expected = await undisturbed();
    const ref = await startRun(broker, "repo-report", { path: folder, pace_ms: 15 });
    await reached(ref, (events) => completedSteps(events).length >= 1);
    await first.pause();
    const second = await runtime();
    const taken = await reached(ref, (events) =>
      events.some((event) => event.type === "run.resumed"),
    );
    first.resume();
    const { events, state } = await ended(broker, ref);
    expect(shownText(state)).toBe(expected);
    const resumedAt = events.findIndex((event) => event.type === "run.resumed");
    expect(taken.length).toBeGreaterThan(resumedAt);
    expect(events.filter((event) => event.type === "run.resumed")).toHaveLength(1);
    // Attempts as the messages' headers tell them: none of the first follows one of the second.
    expect(await attemptsOf(ref)).toEqual([0, 1, 2]);
    await eventually(
      async () => (await metric(first, "throughline_runtime_runs_total", "fenced")) === 1,
    );
    await second.kill();
    expect(await undisturbed()).toBe(expected);
  });

  it("[PROC4] SIGTERM hands the run on at once; the process exits with 0", async () => {
    const first = await runtime({ TL_ACK_WAIT_MS: "30000", TL_DRAIN_MS: "300" });
    const ref = await startRun(broker, "repo-report", { path: folder, pace_ms: 20 });
    await reached(ref, (events) => completedSteps(events).length >= 1);
    const second = await runtime({ TL_ACK_WAIT_MS: "30000" });
    const stopped = first.stop();
    await eventually(async () => (await fetch(`${first.adminUrl}/readyz`)).status === 503);
    expect(await stopped).toMatchObject({ code: 0 });
    const { state } = await ended(broker, ref, 15_000);
    expect(state.attempt).toBe(2);
    expect(state.status).toBe("completed");
    await eventually(
      async () => (await metric(second, "throughline_runtime_runs_total", "completed")) === 1,
    );
  });

  it("[PROC5] health, readiness and metrics are on the admin port", async () => {
    const service = await runtime();
    await undisturbed();
    expect((await fetch(`${service.adminUrl}/healthz`)).status).toBe(200);
    expect(await (await fetch(`${service.adminUrl}/readyz`)).json()).toMatchObject({
      ok: true,
      checks: { worker: "ready" },
    });
    expect(await metric(service, "throughline_runtime_claims_total", "fresh")).toBe(1);
    await eventually(
      async () => (await metric(service, "throughline_runtime_runs_total", "completed")) === 1,
    );
  });

  it.each([
    ["TL_ACK_WAIT_MS", "soon", /TL_ACK_WAIT_MS is "soon" and must be a whole number/],
    ["TL_ALLOWED_ROOTS", "/no/such/folder", /ENOENT.*\/no\/such\/folder/],
    ["TL_SHARDS", "5", /shard/],
    ["TL_DEADLINE_MS", `${4 * 24 * 3_600_000}`, /shorten the deadline/],
  ])("[PROC1][ROOT4] %s=%s ends the start with the reason", async (name, value, reason) => {
    await expect(runtime({ [name]: value })).rejects.toThrow(reason);
  });
});

async function attemptsOf(ref: RunRef): Promise<number[]> {
  const { streamSeq: upTo } = await broker.events.head(ref);
  const attempts: number[] = [];
  let after = 0;
  for (;;) {
    const page = await broker.events.read({ kind: "run", ...ref }, after, { upTo });
    for (const message of page.messages) {
      after = message.streamSeq;
      if (attempts.at(-1) !== message.attempt) attempts.push(message.attempt);
    }
    if (page.end) return attempts;
  }
}

async function metric(service: Service, name: string, label: string): Promise<number> {
  const text = await (await fetch(`${service.adminUrl}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(name) && one.includes(`"${label}"`));
  return Number(line?.split(" ").at(-1) ?? NaN);
}
