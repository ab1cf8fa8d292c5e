/** `npm start`: the whole system on this machine, until Ctrl-C. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { lock } from "./lock.mjs";
import { freePortFrom, taken } from "./ports.mjs";
import { setUp } from "./setup.mjs";
import { HELP, readOptions } from "./start-options.mjs";
import { stopSignal } from "./stop-signal.mjs";
import { summary } from "./summary.mjs";
import { createSupervisor } from "./supervisor.mjs";
import { fixedPorts, processesOf } from "./system.mjs";
import { dim, entry, green, Plain, progress, red, say, warn } from "./terminal.mjs";

await entry(async () => {
  const options = readOptions(process.argv.slice(2));
  if (options === "help") return say(HELP);
  const unlock = await lock(options.data);
  try {
    await refuseTakenPorts(options);
    const { nats, redis } = await setUp();
    const withRedis = "path" in redis;
    if (!withRedis)
      warn(
        `running without Redis: limits are counted in each process. To have it: ${redis.byHand}`,
      );
    return await runUntilStopped({
      ...options,
      nats: nats.path,
      natsPort: await freePortFrom(4222),
      natsMonitorPort: await freePortFrom(8222),
      redis: withRedis ? redis.path : "",
      streamKey: process.env["TL_STREAM_KEY"] || randomBytes(32).toString("hex"),
      redisPort: withRedis ? await freePortFrom(6379) : undefined,
    });
  } finally {
    unlock();
  }
});

/**
 * @param {import("./system.mjs").Plan} plan
 * @returns {Promise<number>} the exit code
 */
async function runUntilStopped(plan) {
  const stop = stopSignal();
  const supervisor = createSupervisor({
    logDir: join(plan.data, "logs"),
    events: {
      crashed: (name, how, ms) =>
        warn(`${name} ended (${how}); it is started again in ${ms / 1000} s`),
      back: (name) => say(`${green("✓")} ${name} is back`),
      hopeless: (name) => {
        say(
          `${red("✗")} ${name} keeps crashing; its last words:\n${dim(supervisor.lastLog(name))}`,
        );
        stop.ask(`Stopping: see ${supervisor.logFile(name)}`, 1);
      },
    },
  });
  stop.onImpatience(() => supervisor.kill());

  const groups = processesOf(plan);
  let code = 1;
  try {
    for (const group of groups) {
      if (stop.isAsked()) break;
      const names = group.map((spec) => spec.name).join(", ");
      await progress(`starting ${names}`, () =>
        Promise.all(group.map((spec) => supervisor.start(spec))),
      );
    }
    if (!stop.isAsked()) say(summary(plan));
    code = await stop.asked;
  } catch (error) {
    say(`${red("✗")} ${error instanceof Error ? error.message : String(error)}`);
  }
  const order = groups.map((group) => group.map((spec) => spec.name)).toReversed();
  await progress("stopping", () => supervisor.stop(order));
  return code;
}

/** @param {import("./start-options.mjs").Options} options */
async function refuseTakenPorts(options) {
  const lines = await taken(fixedPorts(options));
  if (lines.length === 0) return;
  const others = `--port ${options.port + 1000} --admin-port ${options.adminPort + 1000}`;
  throw new Plain(
    `${lines.join("\n  ")}\n  Free it, or use others: npm start -- ${others} --data FOLDER`,
  );
}
