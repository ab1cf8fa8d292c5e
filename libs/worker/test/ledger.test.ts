import { describe, expect, it } from "vitest";
import { Ledger } from "../src/ledger.ts";
import { stateOf, stored } from "./events.ts";

const emit = (seq: number): ReturnType<typeof stored> =>
  stored({ type: "custom", key: `@emit#${seq}`, payload: { name: "x", value: seq } }, seq);

describe("what a run's writer has stored", () => {
  it("[SNAP2] is the state, and waited for by what is looked for in it", async () => {
    const ledger = new Ledger(stateOf(), 10);
    const waited = ledger.until(
      ({ seq }) => (seq >= 4 ? seq : undefined),
      new AbortController().signal,
    );
    ledger.absorb([emit(3)], { streamSeq: 11, cmd: 0 });
    ledger.absorb([emit(4), emit(5)], { streamSeq: 12, cmd: 0 });
    // After a whole message, since its events are stored together.
    expect(await waited).toBe(5);
    expect(await ledger.until(({ seq }) => seq, new AbortController().signal)).toBe(5);
    expect(ledger.streamSeq).toBe(12);
    expect(ledger.state.emits).toEqual({ "@emit": 3 });
  });

  it("[EXE1] is not waited for by an agent that was stopped, nor harmed by a look that throws", async () => {
    const ledger = new Ledger(stateOf(), 10);
    const stop = new AbortController();
    const waited = ledger.until(() => undefined, stop.signal);
    const broken = ledger.until(({ seq }) => {
      if (seq > 2) throw new TypeError("the look's own");
      return undefined;
    }, stop.signal);
    const failed = expect(broken).rejects.toThrow("the look's own");
    ledger.absorb([emit(3)], { streamSeq: 11, cmd: 0 });
    await failed;
    stop.abort(new Error("stopped"));
    await expect(waited).rejects.toThrow("stopped");
    expect(ledger.state.seq).toBe(3);
  });
});
