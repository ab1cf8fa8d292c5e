import { randomBytes } from "node:crypto";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { MAX_INLINE_BYTES } from "@throughline/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Broker, isArtifactRef, offload, openBroker, resolve } from "../src/index.ts";
import { ObjectStore } from "../src/object-store.ts";
import { freshRun } from "./harness.ts";

let nats: NatsServer;
let broker: Broker;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 2 });
});
afterAll(async () => {
  await broker.close();
  await nats.dispose();
});

const KIB = 1024;

describe("objects", () => {
  test("[OBJ1] what is read is what was put, whatever its size", async () => {
    const ref = freshRun();
    for (const size of [0, 1, 256 * KIB, 256 * KIB + 1, 5 * KIB * KIB + 17]) {
      const bytes = randomBytes(size);
      const made = await broker.objects.put(ref, bytes, "image/png");
      expect(made.bytes).toBe(size);
      expect(made.$artifact).toBe(`art_${made.sha256.slice(0, 32)}`);
      const found = await broker.objects.get(ref, made.$artifact);
      expect(found && Buffer.compare(found, bytes)).toBe(0);
      expect(await broker.objects.stat(ref, made.$artifact)).toEqual({
        bytes: size,
        sha256: made.sha256,
        media_type: "image/png",
      });
    }
  });
});

describe("large values", () => {
  test("[OBJ7] a value over the limit becomes a reference and comes back whole", async () => {
    const ref = freshRun();
    const large = { text: "ü".repeat(MAX_INLINE_BYTES / 2) };
    const held = await offload(broker.objects, ref, large);
    expect(isArtifactRef(held)).toBe(true);
    expect(await resolve(broker.objects, ref, held)).toEqual(large);
    expect(await offload(broker.objects, ref, { a: 1 })).toEqual({ a: 1 });
  });
});
