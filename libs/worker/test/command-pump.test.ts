import { openBroker } from "@throughline/broker";
import { eventually, startNats } from "@throughline/testkit";
import { expect, it } from "vitest";
import { CommandPump } from "../src/command-pump.ts";
import { command, freshRef, latch } from "./harness.ts";

it("[REQ3][CMDW1] what is decided by the clock is decided between two commands, one at a time with them", async () => {
  const nats = await startNats();
  const broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
  const ref = freshRef();
  const happened: string[] = [];
  const holdCommand = latch();
  const holdDecision = latch();
  const pump = new CommandPump({
    broker,
    ref,
    after: 0,
    apply: async () => {
      happened.push("command begun");
      await holdCommand.opened;
      happened.push("command applied");
      return "next";
    },
    onFault: (error) => void happened.push(String(error)),
  });
  await command(broker, ref, "run.resume");
  await eventually(() => happened.length === 1);
  const failing = pump.between(() => Promise.reject(new Error("not this time")));
  const decided = pump.between(async () => {
    happened.push("decision begun");
    await holdDecision.opened;
    happened.push("decided");
    return "decision";
  });
  await command(broker, ref, "run.resume");
  holdCommand.open();
  await expect(failing).rejects.toThrow("not this time");
  await eventually(() => happened.length === 3);
  const drained = pump.drain(new AbortController().signal);
  holdDecision.open();
  expect(await decided).toBe("decision");
  await drained;
  expect(happened).toEqual([
    "command begun",
    "command applied",
    "decision begun",
    "decided",
    "command begun",
    "command applied",
  ]);
  await pump.stop();
  await broker.close();
  await nats.dispose();
});
