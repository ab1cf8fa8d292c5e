/** `npm start`: the whole system on this machine, until Ctrl-C. */
import { isAbsolute, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { lock } from "./lock.mjs";
import { freePortFrom, taken } from "./ports.mjs";
import { LOCAL } from "./project.mjs";
import { setUp } from "./setup.mjs";
import { createSupervisor } from "./supervisor.mjs";
import { edgesOf, fixedPorts, processesOf, TOKEN } from "./system.mjs";
import {
  bold,
  dim,
  entry,
  green,
  Plain,
  progress,
  red,
  say,
  STOP_SIGNALS,
  warn,
} from "./terminal.mjs";

const HELP = `npm start: runs Throughline on this machine, until Ctrl-C.

It installs what is missing, builds, and starts NATS (JetStream), Redis, two edges and a runtime worker.
Everything listens on 127.0.0.1 only.

  npm start -- [options]

  --port PORT        the edges' shared port (8080); edge-1 and edge-2 also have the next two
  --admin-port PORT  edge-1's admin port (9081); edge-2 and the runtime have the next two
  --data FOLDER      where streams and logs are kept (.throughline/data)
  --help             this text

NATS and Redis take 4222 and 6379, or the next free ports. TL_* variables reach the services, except those
that are set here. Deleting .throughline/data forgets all runs.`;

await entry(main);

async function main() {
  const options = readOptions();
  if (options === undefined) return 0;
  const { nats, redis } = await setUp();
  const stop = stopSignal();
  const unlock = lock(options.data);
  try {
    await refuseTakenPorts(options);
    const withRedis = "path" in redis;
    /** @type {import("./system.mjs").Plan} */
    const plan = {
      ...options,
      nats: nats.path,
      natsPort: await freePortFrom(4222),
      natsMonitorPort: await freePortFrom(8222),
      redis: withRedis ? redis.path : "",
      redisPort: withRedis ? await freePortFrom(6379) : undefined,
    };
    if (!withRedis)
      warn(
        `running without Redis: limits are counted in each process. To have it: ${redis.byHand}`,
      );
    return await runUntilStopped(plan, stop);
  } finally {
    unlock();
  }
}

/**
 * @param {import("./system.mjs").Plan} plan
 * @param {ReturnType<typeof stopSignal>} stop
 */
async function runUntilStopped(plan, stop) {
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
        stop.ask(`see ${supervisor.logFile(name)}`, 1);
      },
    },
  });
  stop.onImpatience(() => supervisor.kill());

  const groups = processesOf(plan);
  let code = 0;
  try {
    for (const group of groups) {
      if (stop.asked()) break;
      const names = group.map((spec) => spec.name).join(", ");
      await progress(`starting ${names}`, () =>
        Promise.all(group.map((spec) => supervisor.start(spec))),
      );
    }
    if (!stop.asked()) say(summary(plan));
    code = await stop.untilAsked();
  } catch (error) {
    say(`${red("✗")} ${error instanceof Error ? error.message : String(error)}`);
    code = 1;
  }
  await progress("stopping", () =>
    supervisor.stop(groups.map((group) => group.map((spec) => spec.name)).toReversed()),
  );
  return code;
}

/** @param {import("./system.mjs").Plan} plan */
function summary(plan) {
  const at = (/** @type {number} */ port) => `http://127.0.0.1:${port}`;
  const edges = edgesOf(plan);
  const own = edges.map((edge) => `${edge.name} ${at(edge.port)}`).join(", ");
  const flag = plan.port === 8080 ? "" : ` -- --port ${plan.port}`;
  return `
${bold("Throughline is running.")}  ${dim("Ctrl-C stops it and leaves nothing running.")}

  both edges   ${bold(at(plan.port))}
  each         ${own}
  health       ${edges.map((edge) => `${at(edge.adminPort)}/readyz`).join(", ")}
  dev token    ${bold(TOKEN)}   ${dim("(dev.<tenant>.<user>; on this machine only)")}
  behind them  nats://127.0.0.1:${plan.natsPort}${plan.redisPort ? `, redis://127.0.0.1:${plan.redisPort}` : ""}
  logs         ${join(plan.data, "logs")}

Try, in another terminal:

  npm run try${flag}             ${dim("an agent reports on this folder: started at edge-1, followed at edge-2")}
  npm run try${flag || " --"} --kill      ${dim("the same, and edge-2 is killed on the way: the text goes on where it was")}
`;
}

/**
 * Ctrl-C, SIGTERM, a closed terminal, and npm's own death: all ask to stop. A second Ctrl-C ends at once.
 */
function stopSignal() {
  let code = 0;
  let why = "";
  let askedAt = 0;
  /** @type {() => void} */
  let impatient = () => process.exit(130);
  /** @type {(value?: unknown) => void} */
  let wake = () => undefined;
  const woken = new Promise((done) => (wake = done));

  const ask = (/** @type {string} */ reason, exitCode = 0) => {
    if (why !== "") return;
    why = reason;
    code = exitCode;
    say(`\n${reason}`);
    wake();
  };
  for (const signal of STOP_SIGNALS) {
    process.removeAllListeners(signal);
    process.on(signal, () => {
      // One keypress may come twice, from the terminal and from npm: that is no impatience.
      if (why !== "" && Date.now() - askedAt > 500) impatient();
      if (why === "") askedAt = Date.now();
      ask("Stopping.");
    });
  }
  // A closed terminal takes our output with it; that must not keep us from stopping the rest.
  for (const stream of [process.stdout, process.stderr])
    stream.on("error", () => ask("Stopping: the terminal is gone."));
  if (process.env["npm_lifecycle_event"] !== undefined) {
    const npm = process.ppid;
    setInterval(() => process.ppid !== npm && ask("Stopping: npm is gone."), 1000).unref();
  }
  return {
    ask,
    asked: () => why !== "",
    untilAsked: () => woken.then(() => code),
    onImpatience: (/** @type {() => void} */ callback) => {
      impatient = callback;
    },
  };
}

/** @param {{ port: number, adminPort: number }} options */
async function refuseTakenPorts(options) {
  const lines = await taken(fixedPorts(options));
  if (lines.length === 0) return;
  throw new Plain(
    `${lines.join("\n  ")}\n  Free it, or use others: npm start -- --port ${options.port + 1000} --admin-port ${options.adminPort + 1000}`,
  );
}

function readOptions() {
  let values;
  try {
    ({ values } = parseArgs({
      options: {
        port: { type: "string", default: "8080" },
        "admin-port": { type: "string", default: "9081" },
        data: { type: "string", default: join(LOCAL, "data") },
        help: { type: "boolean", default: false },
      },
    }));
  } catch (error) {
    throw new Plain(`${error instanceof Error ? error.message : String(error)}\n\n${HELP}`);
  }
  if (values.help) return say(HELP);
  return {
    port: readPort("--port", values.port),
    adminPort: readPort("--admin-port", values["admin-port"]),
    data: isAbsolute(values.data) ? values.data : resolve(process.cwd(), values.data),
  };
}

/**
 * @param {string} flag
 * @param {string} text
 */
function readPort(flag, text) {
  const port = Number(text);
  // Two more follow each.
  if (Number.isInteger(port) && port > 0 && port <= 65_533) return port;
  throw new Plain(`${flag} must be a port number up to 65533, not "${text}"`);
}
