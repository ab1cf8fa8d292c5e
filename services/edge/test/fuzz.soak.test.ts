import { expect, test } from "vitest";
import { fuzz, risen } from "./fuzz-run.ts";

test("[FUZZ2] [INV7] 100,000 mutated frames and requests: memory comes back to what it was", async () => {
  const { inputs, rss, held, answers } = await fuzz(100_000, { untilRested: true });
  console.log(
    `${inputs} inputs; RSS ${rss.join(" ")} MB; held ${held.map((mb) => Math.round(mb)).join(" ")} MB; ${JSON.stringify(answers)}`,
  );
  expect(risen(rss)).toBeLessThan(40);
}, 900_000);
