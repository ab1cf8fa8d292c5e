import { seededRandom } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { atSeq, type Strike, Takeovers } from "./takeovers.ts";

/** Every event in the soak run; else every sixth, from an offset that the seed draws. */
const STRIDE = process.env["SOAK"] ? 1 : 6;

describe("[C18] [INV3] [INV4] [INV5] kill -9 of the worker in a run with tools, an approval, an input and messages", () => {
  let takeovers: Takeovers;
  beforeAll(async () => {
    takeovers = await Takeovers.open();
  });
  afterAll(() => takeovers.close());

  /** Each event of the run in turn: the last one excepted, after which there is nothing to take over. */
  async function points(): Promise<number[]> {
    const length = await takeovers.length();
    const offset = STRIDE === 1 ? 0 : seededRandom().int(STRIDE);
    const every: number[] = [];
    for (let seq = 2 + offset; seq < length; seq += STRIDE) every.push(seq);
    return every;
  }

  test("after each event: the final state is that of the undisturbed run, and everything took effect once", async () => {
    const before = takeovers.takeovers;
    const seqs = await points();
    await takeovers.kill(seqs.map((seq) => [atSeq(seq)]));
    // A kill that came too late to matter proves nothing: most must have led to a takeover.
    expect(takeovers.takeovers - before).toBeGreaterThanOrEqual(Math.floor(seqs.length * 0.8));
  }, 300_000);

  test("the worker that took over is killed as well, as soon as it has taken over or a little later", async () => {
    const before = takeovers.takeovers;
    const seqs = await points();
    const some = STRIDE === 1 ? seqs : seqs.slice(0, 3);
    await takeovers.kill(
      some.map((seq, i): Strike[] => {
        const later = i % 3;
        return [atSeq(seq), after("run.resumed", later)];
      }),
    );
    expect(takeovers.takeovers - before).toBeGreaterThan(some.length);
  }, 300_000);

  test("right after the last tool result", async () => {
    const times = STRIDE === 1 ? 10 : 2;
    await takeovers.kill(Array.from({ length: times }, () => [afterOutcomes(2)]));
  }, 120_000);
});

/** `later` events after the first event of a type. */
function after(type: string, later: number): Strike {
  let from: number | undefined;
  return (event) => {
    if (event.type === type) from ??= event.seq;
    return from !== undefined && (event.seq ?? 0) >= from + later;
  };
}

function afterOutcomes(count: number): Strike {
  let seen = 0;
  return (event) => {
    if (event.type === "tool_call.completed" || event.type === "tool_call.failed") seen += 1;
    return seen >= count;
  };
}
