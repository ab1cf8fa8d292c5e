import { expect, test } from "vitest";
import { fuzz, risen } from "./fuzz-run.ts";

test("[FUZZ1] [FUZZ2] [INV7] 10,000 mutated frames and requests: the node lives, keeps nothing, and serves who is correct", async () => {
  const { inputs, rss, answers } = await fuzz(10_000);
  console.log(`${inputs} inputs; RSS ${rss.join(" ")} MB; ${JSON.stringify(answers)}`);
  expect(inputs).toBeGreaterThanOrEqual(10_000);
  expect(risen(rss)).toBeLessThan(60);
}, 120_000);
