/** What is accepted while a run's end is prepared. */
import { type Broker, openBroker } from "@throughline/broker";
import { expect, it } from "vitest";
import { defineAgent } from "../src/index.ts";
import {
  command,
  ended,
  freshRef,
  latch,
  startRun,
  startWorker,
  unique,
  workshop,
} from "./harness.ts";

let broker: Broker;
let url: string;
workshop((made) => {
  broker = made.broker;
  url = made.nats.url;
});

it("[CMDW6] a cancellation that is stored while the output is put into the object store is not overridden", async () => {
  const own = await openBroker({ servers: [url], name: "slow", shards: 2 });
  const uploading = latch();
  const cancelled = latch();
  // The upload of a large output takes its time.
  const objects = new Proxy(own.objects, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "put") return value.bind(target);
      return async (...args: unknown[]) => {
        uploading.open();
        await cancelled.opened;
        return value.apply(target, args);
      };
    },
  });
  const slow = new Proxy(own, {
    get(target, name) {
      if (name === "objects") return objects;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const agent = defineAgent({ name: unique("large"), run: async () => "x".repeat(200_000) });
  const worker = await startWorker(url, [agent], { broker: slow });
  const ref = freshRef();
  await startRun(broker, agent.name, { ref });
  await uploading.opened;
  await command(broker, ref, "run.cancel");
  cancelled.open();
  expect((await ended(broker, ref)).at(-1)?.type).toBe("run.cancelled");
  await worker.stop();
  await own.close();
});
