/** States that come by a URL of their own, since no frame holds them. */
import { initialRunState, type RunState } from "@throughline/protocol";
import { eventually, manualClock } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { LargeStates } from "../src/follow/large-states.ts";
import type { Gap } from "../src/index.ts";
import { names, stage, take } from "./stage.ts";

const RUN = { session: "ses_1", run: "run_1" };
const URL_OF_STATE = "/v1/sessions/ses_1/runs/run_1";
const at = (seq: number, status: RunState["status"] = "running"): RunState => ({
  ...initialRunState("run_1"),
  status,
  seq,
});

/** A node that begins a subscription with the name of a state as of event 4. */
async function named() {
  const staged = await stage();
  const { edge, log } = staged;
  log.fill(RUN.session, RUN.run, 3);
  const cursor = log.stored[3]?.event.cursor ?? "";
  edge.faults.subscribed = () => ({
    recovered: true,
    mode: "snapshot",
    after: 4,
    frames: (subscription_id) => [
      { type: "snapshot", subscription_id, run_id: RUN.run, state_url: URL_OF_STATE, cursor },
    ],
  });
  return staged;
}

describe("[CLI46] a state that is named", () => {
  test("is fetched with the token; what came meanwhile is applied to it once", async () => {
    const { edge, log, client } = await named();
    let isReady = false;
    edge.faults.get = () => (isReady ? { state: at(6), cursor: "6-6-x" } : undefined);
    const handle = client().follow({ ...RUN, from: "snapshot" });
    const items = take(handle, 4);
    log.fill(RUN.session, RUN.run, 3, { start: false });
    expect(names(await items)).toEqual(["snapshot", "run_1.5", "run_1.6", "run_1.7"]);
    expect(handle.state.seq).toBe(0);
    isReady = true;
    await eventually(() => handle.state.seq === 7);
    const asked = edge.requests.filter(({ url }) => url === URL_OF_STATE);
    expect(asked.length).toBeGreaterThan(0);
    expect(asked[0]?.headers.authorization).toBe("Bearer dev.acme.ann");
  });

  test("is waited for by a run's end", async () => {
    const { edge, log, client } = await named();
    let isReady = false;
    edge.faults.get = () => (isReady ? { state: at(4), cursor: "4-4-x" } : undefined);
    const handle = client().follow({ ...RUN, from: "snapshot" });
    log.append(RUN.session, RUN.run, { type: "run.completed", payload: { output: 7 } });
    await eventually(() => handle.cursor === log.stored[4]?.event.cursor);
    isReady = true;
    expect(await handle.done).toMatchObject({ status: "completed", output: 7 });
    expect(edge.complaints).toEqual([]);
  });

  test("of a finished run is its end", async () => {
    const { edge, client } = await named();
    edge.faults.get = () => ({ state: { ...at(4, "completed"), output: 7 }, cursor: "4-4-x" });
    const handle = client().follow({ ...RUN, from: "snapshot" });
    expect(await handle.done).toMatchObject({ status: "completed", output: 7 });
  });

  test("that no node gives is told as a gap, and what is known is shown", async () => {
    const { log, client } = await named();
    const gaps: Gap[] = [];
    const handle = client().follow({ ...RUN, from: "snapshot", onGap: (gap) => gaps.push(gap) });
    log.fill(RUN.session, RUN.run, 1, { start: false });
    await eventually(() => gaps.length === 1);
    expect(gaps[0]).toMatchObject({ run_id: RUN.run });
    await eventually(() => handle.state.seq === 5);
  });

  test("is never asked of another server, which would be given the token", async () => {
    const { edge, log, client } = await named();
    const stranger = await stage();
    stranger.edge.faults.get = () => ({ state: at(4), cursor: "4-4-x" });
    const elsewhere = stranger.edge.url.replace("ws:", "http:");
    const cursor = log.stored[3]?.event.cursor ?? "";
    edge.faults.subscribed = () => ({
      recovered: true,
      mode: "snapshot",
      after: 4,
      frames: (subscription_id) => [
        { type: "snapshot", subscription_id, run_id: RUN.run, state_url: elsewhere, cursor },
      ],
    });
    let isGap = false;
    client().follow({ ...RUN, from: "snapshot", onGap: () => (isGap = true) });
    await eventually(() => isGap);
    expect(stranger.edge.requests).toEqual([]);
  });

  test("has to be newer where the events beside it had become too many", async () => {
    const clock = manualClock();
    const states = [at(4), at(5), at(9)];
    const arrived: [number | undefined, number][] = [];
    const large = new LargeStates({
      clock,
      random: () => 0.5,
      reconnect: { baseMs: 10, capMs: 10 },
      maxHeldBytes: 100,
      fetch: () => Promise.resolve(states.shift() ?? at(9)),
      arrived: (_run, state, behind) => arrived.push([state?.seq, behind.length]),
    });
    large.want(RUN.run, URL_OF_STATE, 4);
    for (const seq of [5, 6, 7])
      large.hold({ type: "x", session_id: "s", run_id: RUN.run, seq, payload: {} }, 60);
    await clock.advanceAsync(100);
    // Events 5 and 6 were let go; 7 waited.
    expect(arrived).toEqual([[9, 1]]);
  });
});
