import { describe, test } from "vitest";
import { playGames } from "./fanout-model.ts";

describe("a model of ring, attach and pace, for long", () => {
  test("[ATT1] [ATT4] [LAG3] [HUB5] whatever is published, stalled, lost and resumed: exactly the log", async () => {
    await playGames(1_500);
  }, 600_000);
});
