import type { Command } from "@throughline/protocol";
import { type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  bodyHash,
  type Broker,
  type CommandOutcome,
  openBroker,
  type RunRef,
  type StoredCommand,
} from "../src/index.ts";
import { freshRun } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 1 });
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
});

function say(
  ref: RunRef,
  id: string,
  over: { content?: string; user?: string; at?: number } = {},
): Promise<CommandOutcome> {
  const { content = id, user = "ann", ...at } = over;
  const command: Command = {
    type: "run.continue",
    id,
    session_id: ref.session,
    run_id: ref.run,
    payload: { content },
  };
  return broker.commands.publish({ ref, command, user, hash: bodyHash(content), ...at });
}

describe("finding a stored command", () => {
  test("[CMD5] the last, the first and one in between, over pages, and of its own user only", async () => {
    const ref = freshRun();
    // Several pages of 256 KiB, between the commands of other runs.
    const content = "x".repeat(60_000);
    for (let i = 0; i < 12; i += 1) {
      await say(ref, `c_${i}`, { content: `${content}${i}` });
      await say(freshRun(ref.session), `c_${i}`);
    }
    await say(ref, "c_12", { user: "böb ♥" });
    for (const id of ["c_0", "c_7", "c_11"]) {
      const found = await broker.commands.find({ ref, user: "ann", id });
      expect(found?.command).toMatchObject({ type: "run.continue", id });
      expect(found?.hash).toBe(bodyHash(`${content}${id.slice(2)}`));
    }
    expect((await broker.commands.find({ ref, user: "böb ♥", id: "c_12" }))?.user).toBe("böb ♥");
    for (const [user, id] of [
      ["böb ♥", "c_0"],
      ["ann", "c_12"],
      ["ann", "never"],
    ] as const) {
      expect(await broker.commands.find({ ref, user, id })).toBeUndefined();
    }
    expect(await broker.commands.find({ ref: freshRun(), user: "ann", id: "c_0" })).toBeUndefined();
  });

  test("[CMD5] what was confirmed just now is found, every time", async () => {
    const ref = freshRun();
    for (let i = 0; i < 50; i += 1) {
      const id = `c_${i}`;
      const stored = await say(ref, id);
      await say(ref, `after_${i}`);
      const found = await broker.commands.find({ ref, user: "ann", id });
      expect(stored).toEqual({ outcome: "stored", streamSeq: found?.streamSeq });
    }
  });

  test("[CMD5] a run's commands are read on from a place, to the leader's last", async () => {
    const ref = freshRun();
    const seqs: number[] = [];
    for (let i = 0; i < 5; i += 1) {
      const outcome = await say(ref, `c_${i}`);
      if (outcome.outcome === "stored") seqs.push(outcome.streamSeq);
    }
    const after = async (seq: number): Promise<number[]> => {
      const all: StoredCommand[] = [];
      for await (const stored of broker.commands.stored(ref, seq)) all.push(stored);
      return all.map((stored) => stored.streamSeq);
    };
    expect(await after(0)).toEqual(seqs);
    expect(await after(seqs[2] ?? 0)).toEqual(seqs.slice(3));
    expect(await after(seqs[4] ?? 0)).toEqual([]);
  });
});

describe("when a command was taken", () => {
  test("[CMD4] is kept, of the first time; 0 where it was not told", async () => {
    const ref = freshRun();
    await say(ref, "told", { at: 1_764_532_800_123 });
    await say(ref, "told", { at: 1_764_532_900_000 });
    await say(ref, "untold");
    const got: StoredCommand[] = [];
    const tail = broker.commands.tail(ref, 0, {
      command: (stored) => got.push(stored),
      fault: (error) => {
        throw error;
      },
    });
    await tail.drainToLeader();
    // One of the tail's own live copies, and not only what is read from the log.
    await say(ref, "live", { at: 5 });
    await tail.drainToLeader();
    tail.close();
    expect(got.map((stored) => stored.at)).toEqual([1_764_532_800_123, 0, 5]);
    expect((await broker.commands.find({ ref, user: "ann", id: "told" }))?.at).toBe(
      1_764_532_800_123,
    );
  });
});
