/** Random faults on both links and order: whoever reads gets exactly the log. */
import { type RunState, initialRunState, reduce } from "@throughline/protocol";
import { type SeededRandom, seededRandom } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import type { FollowItem } from "../src/index.ts";
import { type EdgeDouble, type Log, queued } from "./edge-double.ts";
import { stage } from "./stage.ts";

const ROUNDS = 25;
const EVENTS = 120;

/** Each event may be sent twice, late, out of place, mangled or not at all, and the link may break behind it. */
function makeUnreliable(edge: EdgeDouble, random: SeededRandom, mildness: number): void {
  let held: Parameters<NonNullable<typeof edge.faults.deliver>>[0] | undefined;
  edge.faults.deliver = (event, connection) => {
    if (random.chance(0.02 / mildness)) setImmediate(() => connection.cut());
    if (random.chance(0.01 / mildness)) setImmediate(() => connection.unsubscribe("too_slow"));
    if (random.chance(0.01 / mildness)) connection.send(["mangled"]);
    const before = held;
    held = undefined;
    if (random.chance(0.02 / mildness)) return before === undefined ? [] : [before];
    if (random.chance(0.03 / mildness)) {
      held = event;
      return before === undefined ? [] : [before];
    }
    if (random.chance(0.05 / mildness)) return [event, event];
    return before === undefined ? [event] : [event, before];
  };
  edge.faults.command = (command, connection) => {
    if (command.type !== "subscribe" || !random.chance(0.1 / mildness)) return false;
    if (random.chance(0.5))
      connection.send({ type: "error", id: command.id, code: "unavailable", message: "later" });
    else connection.cut();
    return true;
  };
  edge.faults.closeAtOnce = () =>
    random.chance(0.1 / mildness) ? random.pick([1012, 1013, 4408, 4410]) : undefined;
}

async function write(log: Log, runs: string[], random: SeededRandom): Promise<void> {
  for (const run of runs) log.append("ses_1", run, queued());
  for (let n = 0; n < EVENTS; n++) {
    log.append("ses_1", random.pick(runs), { type: "custom", payload: { name: "n", value: n } });
    if (random.chance(0.2)) await new Promise((resolve) => setImmediate(resolve));
  }
  for (const run of runs)
    log.append("ses_1", run, { type: "run.completed", payload: { output: run } });
}

const perRun = (items: readonly FollowItem[], run: string): number[] =>
  items.flatMap((item) => ("seq" in item && item.run_id === run ? [item.seq] : []));

/** Reads to the end, now and then slowly. */
async function read(
  source: AsyncIterable<FollowItem>,
  total: number,
  random: SeededRandom,
): Promise<FollowItem[]> {
  const items: FollowItem[] = [];
  for await (const item of source) {
    items.push(item);
    if (items.length === total) break;
    if (random.chance(0.1)) await new Promise((resolve) => setImmediate(resolve));
  }
  return items;
}

describe("[CLI30] [CLI31] [CLI32] [CLI37] whatever the link does, the reader gets exactly the log", () => {
  const random = seededRandom();

  test(`a run, ${ROUNDS} times`, { timeout: 120_000 }, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const { edges, log, client } = await stage(2);
      for (const edge of edges) makeUnreliable(edge, random, 1);
      const handle = client({ random: () => random.next() }).follow({
        session: "ses_1",
        run: "a",
        buffer: { items: random.between(2, 40) },
      });
      const writing = write(log, ["a", "b"], random);
      const items = await read(handle, Number.POSITIVE_INFINITY, random);
      await writing;
      expect(items).toEqual(log.of("ses_1", "a"));
      expect((await handle.done).state).toEqual(
        log.of("ses_1", "a").reduce<RunState>(reduce, initialRunState("a")),
      );
      expect(edges.flatMap(({ complaints }) => complaints)).toEqual([]);
    }
  });

  test(`a session of three runs, ${ROUNDS} times`, { timeout: 120_000 }, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const { edges, log, client } = await stage(2);
      for (const edge of edges) makeUnreliable(edge, random, 3);
      const handle = client({ random: () => random.next() }).follow({
        session: "ses_1",
        buffer: { items: random.between(2, 40) },
      });
      const runs = ["a", "b", "c"];
      const writing = write(log, runs, random);
      const reading = read(handle, EVENTS + 2 * runs.length, random);
      await writing;
      // A session has no end by which the loss of its last event could be seen, so that one is not lost.
      for (const edge of edges) {
        delete edge.faults.deliver;
        edge.cut();
      }
      const items = await reading;
      for (const run of runs)
        expect(perRun(items, run)).toEqual(log.of("ses_1", run).map(({ seq }) => seq));
      expect(edges.flatMap(({ complaints }) => complaints)).toEqual([]);
    }
  });
});
