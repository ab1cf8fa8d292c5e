import { describe, expect, it } from "vitest";
import { DrainGate } from "../src/drain-gate.ts";

function gate(): { gate: DrainGate; borders: () => number; abort: AbortController } {
  let count = 0;
  return {
    gate: new DrainGate(() => (count += 1)),
    borders: () => count,
    abort: new AbortController(),
  };
}

describe("[FIN5] draining", () => {
  it("lets running steps end and begins none: the border is when the last has ended and one waits", async () => {
    const { gate: it, borders, abort } = gate();
    await it.enter(abort.signal);
    await it.enter(abort.signal);
    it.drain();
    const next = it.enter(abort.signal);
    it.leave();
    expect(borders()).toBe(0);
    it.leave();
    expect(borders()).toBe(1);
    abort.abort(new Error("shutdown"));
    await expect(next).rejects.toThrow("shutdown");
  });

  it("waits for a step to be wanted: an agent between steps is not cut short", async () => {
    const { gate: it, borders, abort } = gate();
    await it.enter(abort.signal);
    it.leave();
    it.drain();
    expect(borders()).toBe(0);
    it.enter(abort.signal).catch(() => undefined);
    expect(borders()).toBe(1);
    abort.abort(new Error("shutdown"));
  });

  it("an agent that waits for somebody is not waited for, but for its steps", async () => {
    const { gate: it, borders, abort } = gate();
    await it.enter(abort.signal);
    const heard = it.wait();
    it.drain();
    expect(borders()).toBe(0);
    heard();
    it.leave();
    expect(borders()).toBe(0);
    it.wait();
    expect(borders()).toBe(1);
  });

  it("a step that comes after the stop does not begin", async () => {
    const { gate: it, abort } = gate();
    abort.abort(new Error("gone"));
    await expect(it.enter(abort.signal)).rejects.toThrow("gone");
  });
});
