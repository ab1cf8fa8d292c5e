/** Iterations that are slow, late, left or repeated. */
import { eventually } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { names, stage, take } from "./stage.ts";

const RUN = { session: "ses_1", run: "run_1" };
const upTo = (count: number, from = 1): string[] =>
  Array.from({ length: count - from + 1 }, (_, n) => `run_1.${n + from}`);

describe("slow", () => {
  test("[CLI37] a slow iteration stops the flow at its bound and loses nothing", async () => {
    const { edge, log, client } = await stage();
    const sent: number[] = [];
    edge.faults.deliver = (event) => {
      sent.push(event.seq);
      return [event];
    };
    log.fill("ses_1", "run_1", 10);
    const handle = client().follow({ ...RUN, buffer: { items: 20 } });
    const iterator = handle[Symbol.asyncIterator]();
    const seen: number[] = [];
    const pull = async (): Promise<void> => {
      const { value } = await iterator.next();
      if (value !== undefined && "seq" in value) seen.push(value.seq);
    };
    await pull();
    for (let n = 12; n <= 200; n++) log.fill("ses_1", "run_1", 1, { start: false });
    await eventually(() => edge.sent("unsubscribe").length === 1);
    // The flow stands: what is written now is not sent.
    const before = sent.length;
    log.fill("ses_1", "run_1", 49, { start: false, end: true });
    expect(handle.state.seq).toBeLessThan(200);
    while (seen.length < 10) await pull();
    expect(sent.length).toBe(before);
    while (seen.length < 250) await pull();
    expect(seen).toEqual(Array.from({ length: 250 }, (_, n) => n + 1));
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    expect(edge.sent("subscribe").length).toBeGreaterThan(2);
    expect(handle.state.status).toBe("completed");
  });

  test("[CLI37] the bound counts bytes as well", async () => {
    const { edge, log, client } = await stage();
    const handle = client().follow({ ...RUN, buffer: { bytes: 50_000 } });
    const iterator = handle[Symbol.asyncIterator]();
    log.fill("ses_1", "run_1", 0);
    await iterator.next();
    for (let n = 0; n < 10; n++)
      log.append("ses_1", "run_1", {
        type: "custom",
        payload: { name: "x", value: "x".repeat(10_000) },
      });
    await eventually(() => edge.sent("unsubscribe").length === 1);
    log.append("ses_1", "run_1", { type: "run.completed", payload: {} });
    expect(names(await take({ [Symbol.asyncIterator]: () => iterator }))).toEqual(upTo(12, 2));
  });

  test("[CLI37] a cut while the flow is stopped changes nothing", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 98, { end: true });
    const handle = client().follow({ ...RUN, buffer: { items: 8 } });
    const seen: string[] = [];
    for await (const item of handle) {
      seen.push(...names([item]));
      if (seen.length % 7 === 0) edge.cut();
    }
    expect(seen).toEqual(upTo(100));
  });

  test("[CLI44] deltas are left out for an iteration that is behind", async () => {
    const { edge, log, client } = await stage();
    log.append("ses_1", "run_1", {
      type: "run.queued",
      payload: { agent: "a", input: 1, by: "u", deadline: 1 },
    });
    const handle = client().follow({ ...RUN, buffer: { items: 20 } });
    const iterator = handle[Symbol.asyncIterator]();
    await iterator.next();
    const delta = (n: number): object => ({
      type: "log",
      session_id: "ses_1",
      run_id: "run_1",
      attempt: 1,
      ts: n,
      payload: { level: "info", message: `${n}` },
    });
    for (const connection of edge.connections)
      for (let n = 0; n < 100; n++) connection.send(delta(n));
    log.fill("ses_1", "run_1", 1, { start: false, end: true });
    await eventually(() => handle.state.seq === 3);
    const items = await take({ [Symbol.asyncIterator]: () => iterator });
    expect(items.filter(({ type }) => type === "log").length).toBe(10);
    expect(names(items).slice(-2)).toEqual(["run_1.2", "run_1.3"]);
  });

  test("deltas that are not wanted are not asked for", async () => {
    const { edge, client } = await stage();
    client().follow({ ...RUN, deltas: false });
    await eventually(() => edge.sent("subscribe").length === 1);
    expect(edge.sent("subscribe")[0]?.payload).toEqual({ from: "start", deltas: false });
  });
});

describe("late and again", () => {
  test("[CLI38] an iteration that begins after the run's end gets all of it", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 3, { end: true });
    const handle = client().follow(RUN);
    const outcome = await handle.done;
    let told = 0;
    handle.subscribe(() => (told += 1));
    expect(names(await take(handle))).toEqual(upTo(5));
    expect(names(await take(handle))).toEqual([]);
    // The state had seen it all: it has not moved, and nobody was told that it had.
    expect(handle.state).toBe(outcome.state);
    expect(told).toBe(0);
  });

  test("[CLI38] a second iteration goes on where the first was left, and `cursor` says where that is", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 6, { end: true });
    const handle = client().follow(RUN);
    expect(names(await take(handle, 3))).toEqual(upTo(3));
    expect(handle.cursor).toBe(log.stored[2]?.event.cursor);
    await handle.done;
    expect(names(await take(handle, 2))).toEqual(upTo(5, 4));
    expect(names(await take(handle))).toEqual(upTo(8, 6));
  });

  test("[CLI38] left while the flow was stopped, the state goes on by itself", async () => {
    const { edge, log, client } = await stage();
    log.fill("ses_1", "run_1", 50);
    const handle = client().follow({ ...RUN, buffer: { items: 10 } });
    await take(handle, 1);
    await eventually(() => handle.state.seq === 51);
    expect(edge.complaints).toEqual([]);
  });

  test("[CLI38] two at a time are a mistake of the caller", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 1);
    const handle = client().follow(RUN);
    const first = handle[Symbol.asyncIterator]();
    await first.next();
    await expect(take(handle)).rejects.toThrow("being iterated already");
    await first.return?.();
    expect(names(await take(handle, 1))).toEqual(["run_1.2"]);
  });

  test("[CLI38] several `next` at once are answered in order, and `return` ends those that wait", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 1);
    const iterator = client().follow(RUN)[Symbol.asyncIterator]();
    const asked = [iterator.next(), iterator.next(), iterator.next()];
    const [first, second] = await Promise.all(asked.slice(0, 2));
    expect([first?.value, second?.value]).toMatchObject([{ seq: 1 }, { seq: 2 }]);
    await iterator.return?.();
    expect(await asked[2]).toEqual({ done: true, value: undefined });
  });

  test("[CLI38] a session's iteration begins late too, at its own place", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "a", 2, { end: true });
    log.fill("ses_1", "b", 2);
    const handle = client().follow({ session: "ses_1" });
    await eventually(() => handle.state.runs["b"]?.seq === 3);
    expect(names(await take(handle, 5))).toEqual(["a.1", "a.2", "a.3", "a.4", "b.1"]);
    log.fill("ses_1", "b", 1, { start: false });
    expect(names(await take(handle, 3))).toEqual(["b.2", "b.3", "b.4"]);
  });
});
