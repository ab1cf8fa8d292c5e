import { seededRandom } from "@throughline/testkit";
import { afterAll, beforeAll, describe, test } from "vitest";
import { KillingGround } from "./kill-points.ts";

describe("[INV2] [INV10] an edge is killed at a random point", () => {
  let ground: KillingGround;
  beforeAll(async () => {
    ground = await KillingGround.open(seededRandom());
  });
  afterAll(() => ground.close());

  test(
    "15 times: each client's events are the log, for a run and for a session",
    { timeout: 120_000 },
    () => ground.kill(15),
  );
});
