import { createClient } from "@throughline/client/node";
import { tcpProxy } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BY_HAND, writerOf } from "./hand-worker.ts";
import { startWorld, type World } from "./world.ts";

const CUT_MS = 60_000;

describe("[C17] a client is cut off for 60 s while its run finishes", () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld();
  });
  afterAll(() => world.dispose());

  test(
    "when it is back, its node has forgotten the run, and it gets the rest all the same",
    { timeout: 120_000 },
    async () => {
      const edge = await world.edge();
      const proxy = await tcpProxy({ port: edge.port });
      const client = createClient({ url: `http://${proxy.address}`, token: "dev.acme.ann" });
      const session = await client.createSession();
      const handle = await client.start({ session, agent: BY_HAND, input: null });
      const given: (string | undefined)[] = [];
      const reading = (async () => {
        for await (const item of handle) given.push("seq" in item ? item.event_id : item.type);
      })();
      const writer = await writerOf(world.broker, session, handle.run_id);
      await writer.append({ type: "run.started", payload: { attempt: 1, worker: BY_HAND } });
      proxy.refuse();
      proxy.cut();
      await writer.append({ type: "custom", payload: { name: "n", value: 1 } });
      await writer.append({ type: "run.completed", payload: { output: 1 } });
      await new Promise((resolve) => setTimeout(resolve, CUT_MS));
      await proxy.accept();
      expect(await handle.done).toMatchObject({ status: "completed", output: 1 });
      await reading;
      expect(given).toEqual(
        (await world.log(session, handle.run_id)).map(({ event_id }) => event_id),
      );
      client.close();
      proxy.close();
    },
  );
});
