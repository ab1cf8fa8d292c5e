import { eventually } from "@throughline/testkit";
import { expect, test } from "vitest";
import { gauge, residentMb, startInspectedEdge } from "./gauges.ts";
import { range, Stage } from "./stage.ts";

const PAIRS = 100_000;
/** Sent ahead of their answers; a connection may have 256 subscriptions. */
const AHEAD = 100;

test("[SUB2] [HUB4] [INV7] 100,000 times subscribed and unsubscribed on one connection: nothing is left of them", async () => {
  const stage = await Stage.open();
  const { edge, heldMb } = await startInspectedEdge(stage.nats.url, {
    TL_SHARDS: "2",
    // It sends faster than any client should.
    TL_FRAMES_PER_SECOND: "1000000",
  });
  const session = await stage.session(edge);
  const runs = await Promise.all(range(1, AHEAD).map(() => stage.run(session)));
  const client = await stage.connected(edge);
  const rss: number[] = [];
  const held: number[] = [];
  for (let done = 0; done < PAIRS; done += AHEAD) {
    client.frames.length = 0;
    for (const { ref } of runs) {
      client.send({
        type: "subscribe",
        id: ref.run,
        session_id: session,
        run_id: ref.run,
        payload: {},
      });
    }
    await client.frame("caught_up", AHEAD);
    const ids = client.frames.filter(({ type }) => type === "subscribed");
    for (const { subscription_id } of ids) {
      client.send({ type: "unsubscribe", id: subscription_id ?? "", payload: { subscription_id } });
    }
    await client.frame("unsubscribed", AHEAD);
    expect(client.frames.filter(({ type }) => type === "error")).toEqual([]);
    if (done % (PAIRS / 10) === 0) {
      rss.push(await residentMb(edge));
      held.push(await heldMb());
    }
  }
  console.log(
    `${PAIRS} subscriptions; RSS ${rss.join(" ")} MB; held ${held.map((mb) => mb.toFixed(1)).join(" ")} MB`,
  );
  // The first sample is from before code and pages were in use.
  expect(await heldMb()).toBeLessThan((held[1] ?? 0) + 3);
  expect(await residentMb(edge)).toBeLessThan((rss[1] ?? 0) + 40);
  // The hubs linger for 30 s; their tails and rings go with them.
  await eventually(async () => (await gauge(edge, "throughline_edge_hubs")) === 0, {
    timeoutMs: 60_000,
  });
  // The connection is as good as new.
  await client.subscribe({ session });
  client.terminate();
  await edge.dispose();
  await stage.close();
}, 900_000);
