/** `npm test`: set-up, build, then all tests against real servers. Arguments are vitest's; `--soak` adds the long ones. */
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { ROOT, TEST_REPORT } from "./project.mjs";
import { setUp } from "./setup.mjs";
import { entry, Plain, say, show } from "./terminal.mjs";

await entry(async () => {
  const args = process.argv.slice(2);
  const soak = args.includes("--soak");
  const { nats, redis } = await setUp();
  if ("byHand" in redis) throw new Plain(`the tests need a real redis-server: ${redis.byHand}`);
  say(`testing against nats-server ${nats.version} and redis-server`);

  // The report is for .ci/run; one of an earlier run must not be taken for this one's.
  mkdirSync(dirname(TEST_REPORT), { recursive: true });
  rmSync(TEST_REPORT, { force: true });
  return show(
    process.execPath,
    [
      join(ROOT, "node_modules/vitest/vitest.mjs"),
      "run",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${TEST_REPORT}`,
      ...args.filter((arg) => arg !== "--soak"),
    ],
    { cwd: ROOT, env: { ...process.env, NATS_SERVER: nats.path, ...(soak ? { SOAK: "1" } : {}) } },
  );
});
