import { expect, test } from "vitest";
import { fuzz, risen } from "./fuzz-run.ts";

test("[FUZZ1] [FUZZ2] [INV7] 10,000 mutated frames and requests: the node lives, keeps nothing, and serves who is correct", async () => {
  const { inputs, rss, held, answers } = await fuzz(10_000);
  console.log(
    `${inputs} inputs; RSS ${rss.join(" ")} MB; held ${held.map((mb) => Math.round(mb)).join(" ")} MB; ${JSON.stringify(answers)}`,
  );
  expect(inputs).toBeGreaterThanOrEqual(10_000);
  expect(risen(held)).toBeLessThan(8);
  expect(risen(rss)).toBeLessThan(30);
}, 120_000);
