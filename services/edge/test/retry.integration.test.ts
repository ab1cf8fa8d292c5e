import { deriveRunId, type RunRef } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { Api } from "./api.ts";
import { completed, freshId, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let other: Edge;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  other = await stage.edge();
});
afterAll(() => stage.close());

const payload = {
  agent: "echo",
  input: { n: 1 },
  tools: [{ name: "shell", input_schema: { type: "object" } }],
  options: { model: "m2" },
  attachments: [{ artifact_id: "art_1", name: "a.txt" }],
};

const step: readonly NewEvent[] = [
  { type: "run.started", payload: { attempt: 1, worker: "w1" } },
  { type: "step.started", key: "run/look#0", payload: { step_id: "stp_1", name: "look" } },
  { type: "step.completed", payload: { step_id: "stp_1", output: 1 } },
];

/** A run that was started through an edge, with one step done; it ends where the test says so. */
async function begun(): Promise<{ ref: RunRef; append: (event: NewEvent) => Promise<unknown> }> {
  const client = await stage.connected(edge);
  const created = await client.ask({
    type: "session.create",
    payload: { members: { vic: "viewer", bob: "operator" }, options: { temperature: 1 } },
  });
  const session = created.session_id ?? "";
  const started = await client.ask({ type: "run.start", session_id: session, payload });
  const ref = { tenant: "acme", session, run: started.run_id ?? "" };
  const queued = await stage.broker.events.queued(ref);
  const writer = await stage.writer(ref, queued?.epoch ?? "", queued?.streamSeq ?? 0);
  await writer.appendAll(step);
  client.close();
  return { ref, append: (event) => writer.append(event) };
}

async function queuedPayload({ session, run }: RunRef): Promise<unknown> {
  const { body } = await new Api(edge).get(`/v1/sessions/${session}/runs/${run}/events`);
  const [event] = body.events as { type: string; payload: unknown; reply_to: string }[];
  expect(event?.type).toBe("run.queued");
  return event?.payload;
}

/** What the streams' own retention does to what is old. */
async function expire(ref: RunRef, what: "events" | "snapshot"): Promise<void> {
  const path = `*.acme.${ref.session}.${ref.run}`;
  const [name, filter] =
    what === "events" ? ["TL_EV", `tl.ev.${path}.>`] : ["TL_SN", `tl.sn.${path}`];
  const shard = stage.broker.shardOf(ref.session);
  const { purged } = await stage.broker.jsm.streams.purge(`${name}_${shard}`, { filter });
  if (what === "events") expect(purged).toBeGreaterThan(0);
}

const retry = (ref: RunRef, id: string, more: object = {}): { type: string; id: string } => ({
  type: "run.retry",
  id,
  ...{ session_id: ref.session, run_id: ref.run, payload: more },
});

describe("a finished run once more", () => {
  test("[RETRY1] [EXEC3] is a new run with what the old one began with, and one for all retries of the command", async () => {
    const { ref, append } = await begun();
    await append(completed);
    const id = freshId();
    const [a, b] = await Promise.all([
      stage.connected(edge, { token: "dev.acme.bob" }),
      stage.connected(other, { token: "dev.acme.bob" }),
    ]);
    const first = await a.ask(retry(ref, id));
    const run = deriveRunId({ tenant: "acme", user: "bob", session: ref.session, id });
    expect(first).toMatchObject({ type: "command.accepted", run_id: run, duplicate: false });
    expect(await b.ask(retry(ref, id))).toMatchObject({ run_id: run, duplicate: true });
    expect(await b.ask(retry(ref, id, { from_step: "stp_1" }))).toMatchObject({
      code: "idempotency_conflict",
    });
    expect(await queuedPayload({ ...ref, run })).toEqual({
      ...payload,
      options: { temperature: 1, model: "m2" },
      retry_of: ref.run,
      by: "bob",
      deadline: expect.any(Number) as number,
    });
    // The list of the session's runs says whose repetition it is.
    const { body } = await new Api(other).get(`/v1/sessions/${ref.session}`);
    expect(body.runs).toMatchObject([{ run_id: run, retry_of: ref.run }, { run_id: ref.run }]);
  });

  test("[RETRY2] one that goes on is not repeated, and what it does is said; nor from a step that is not there", async () => {
    const { ref, append } = await begun();
    const client = await stage.connected(edge);
    expect(await client.ask(retry(ref, freshId()))).toMatchObject({
      type: "command.rejected",
      code: "not_allowed",
      current: { status: "running" },
    });
    await append(completed);
    expect(await client.ask(retry(ref, freshId(), { from_step: "stp_9" }))).toMatchObject({
      code: "not_found",
    });
    const path = `/v1/sessions/${ref.session}/runs/${ref.run}/commands`;
    const command = { type: "run.retry", payload: { from_step: "stp_1" } };
    const { status, body } = await new Api(edge).post(path, command, freshId());
    expect([status, body.duplicate]).toEqual([202, false]);
    const fresh = { ...ref, run: String(body.run_id) };
    expect(await queuedPayload(fresh)).toMatchObject({ retry_of: ref.run, from_step: "stp_1" });
    // The new one has not ended: it is no run to repeat either.
    expect(await client.ask(retry(fresh, freshId()))).toMatchObject({
      current: { status: "queued" },
    });
  });

  test("[RETRY3] [INV11] a viewer may not, and a stranger's run is not there", async () => {
    const { ref, append } = await begun();
    await append(completed);
    const viewer = await stage.connected(edge, { token: "dev.acme.vic" });
    expect(await viewer.ask(retry(ref, freshId()))).toMatchObject({ code: "forbidden" });
    const stranger = await stage.connected(edge, { token: "dev.umbrella.ann" });
    expect(await stranger.ask(retry(ref, freshId()))).toMatchObject({ code: "not_found" });
    const nobody = { ...ref, run: "run_unknown" };
    const client = await stage.connected(edge);
    expect(await client.ask(retry(nobody, freshId()))).toMatchObject({ code: "not_found" });
  });

  test("[RETRY4] one of which only the last state is left can be repeated", async () => {
    const { ref, append } = await begun();
    await append(completed);
    const queued = await stage.broker.events.queued(ref);
    await stage.snapshot(ref, await stage.writer(ref, queued?.epoch ?? "", 0));
    await expire(ref, "events");
    const client = await stage.connected(other);
    const answer = await client.ask(retry(ref, freshId(), { from_step: "stp_1" }));
    expect(answer).toMatchObject({ type: "command.accepted" });
    const again = { ...ref, run: answer.run_id ?? "" };
    expect(await queuedPayload(again)).toMatchObject({ input: { n: 1 } });
  });

  test("[RETRY5] [C21] an id that was used is judged by what it started, whatever else the command names", async () => {
    const { ref, append } = await begun();
    const client = await stage.connected(edge);
    const conflict = { type: "command.rejected", code: "idempotency_conflict" };
    await append(completed);
    const id = freshId();
    const { run_id } = await client.ask(retry(ref, id, { from_step: "stp_1" }));
    expect(await client.ask(retry(ref, id, { from_step: "stp_9" }))).toMatchObject(conflict);
    expect(await client.ask(retry(ref, id))).toMatchObject(conflict);
    // Neither a run that is not there nor one that goes on is looked at.
    for (const run of ["run_unknown", run_id ?? ""]) {
      expect(await client.ask(retry({ ...ref, run }, id))).toMatchObject(conflict);
    }
    const start = { type: "run.start", id: freshId(), session_id: ref.session, payload };
    await client.ask(start);
    expect(await client.ask(retry(ref, start.id))).toMatchObject(conflict);
  });

  test("[RETRY5] [EXEC2] sent again when nothing is left of the old run, and of the new one its last state, it is a duplicate", async () => {
    const { ref, append } = await begun();
    await append(completed);
    const client = await stage.connected(edge);
    const id = freshId();
    const again = retry(ref, id, { from_step: "stp_1" });
    const { run_id: run = "" } = await client.ask(again);
    await expire(ref, "events");
    await expire(ref, "snapshot");
    const duplicate = { type: "command.accepted", run_id: run, duplicate: true };
    expect(await client.ask(again)).toMatchObject(duplicate);
    const fresh = { ...ref, run };
    const queued = await stage.broker.events.queued(fresh);
    await stage.snapshot(fresh, await stage.writer(fresh, queued?.epoch ?? "", 0));
    await expire(fresh, "events");
    expect(await client.ask(again)).toMatchObject(duplicate);
    expect(await client.ask(retry(ref, id))).toMatchObject({ code: "idempotency_conflict" });
  });
});
