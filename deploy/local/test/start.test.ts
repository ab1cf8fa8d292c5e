import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually, freePort, removeDir, tempDir } from "@throughline/testkit";
import { holderOf, isFree } from "../ports.mjs";
import { ROOT } from "../project.mjs";
import { readOptions } from "../start-options.mjs";
import { edgesOf, fixedPorts, processesOf, TOKEN } from "../system.mjs";

let plan: { port: number; adminPort: number };
let data: string;
const started: ChildProcess[] = [];

beforeAll(async () => {
  plan = await freeRange();
});
beforeEach(() => {
  data = tempDir("start");
});
afterEach(async () => {
  for (const child of started.splice(0)) {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  }
  await eventually(allFree, { timeoutMs: 15_000 });
  removeDir(data);
});

/** Two bases, each with its following ports free. */
async function freeRange(): Promise<typeof plan> {
  return eventually(async () => {
    const candidate = { port: await freePort(), adminPort: await freePort() };
    const free = await Promise.all(fixedPorts(candidate).map(({ port }) => isFree(port)));
    return free.every(Boolean) && candidate;
  });
}

const allFree = async (): Promise<boolean> =>
  (await Promise.all(fixedPorts(plan).map(({ port }) => isFree(port)))).every(Boolean);

interface Start {
  child: ChildProcess;
  output: () => string;
  exit: Promise<number | null>;
  running: () => Promise<unknown>;
}

function start(...more: string[]): Start {
  return startWith({}, ...more);
}

function startWith(env: Record<string, string>, ...more: string[]): Start {
  const args = [
    "--port",
    `${plan.port}`,
    "--admin-port",
    `${plan.adminPort}`,
    "--data",
    data,
    ...more,
  ];
  const child = spawn(process.execPath, [join(ROOT, "deploy/local/start.mjs"), ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.push(child);
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => (text += String(chunk)));
  const exit = new Promise<number | null>((resolve) => child.once("exit", resolve));
  return {
    child,
    exit,
    output: () => text,
    running: () =>
      eventually(() => text.includes("Throughline is running"), {
        timeoutMs: 60_000,
        what: () => `running; ${text}`,
      }),
  };
}

/** Of everything that listens: the edges, the runtime, and through the summary NATS and Redis. */
async function pidsOf(output: string): Promise<number[]> {
  const stores = [...output.matchAll(/(?:nats|redis):\/\/127\.0\.0\.1:(\d+)/g)].map((match) =>
    Number(match[1]),
  );
  const holders = await Promise.all(
    [...fixedPorts(plan).map(({ port }) => port), ...stores].map(holderOf),
  );
  return [...new Set(holders.flatMap((holder) => holder?.pid ?? []))];
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const isReady = async (adminPort: number): Promise<boolean> =>
  (await fetch(`http://127.0.0.1:${adminPort}/readyz`)).ok;

describe("npm start", () => {
  it(
    "[RUN1][RUN2] runs all, and on SIGTERM leaves nothing; then the same again",
    { timeout: 180_000 },
    async () => {
      for (const signal of ["SIGTERM", "SIGINT"] as const) {
        const system = start();
        await system.running();
        const ready = edgesOf(plan).map((edge) => isReady(edge.adminPort));
        expect(await Promise.all(ready)).toEqual([true, true]);
        const pids = await pidsOf(system.output());
        expect(pids).toHaveLength(5);

        system.child.kill(signal);
        expect(await system.exit).toBe(0);
        expect(pids.filter(isAlive)).toEqual([]);
        expect(await allFree()).toBe(true);
      }
    },
  );

  it(
    "[RUN7] offers llm where a model is named, and a shell in a folder of its data",
    { timeout: 90_000 },
    async () => {
      await startWith({ OPENAI_MODEL: "m", OPENAI_BASE_URL: "http://127.0.0.1:9/v1" }).running();
      const response = await fetch(`http://127.0.0.1:${plan.port}/v1/agents`, {
        headers: { Authorization: `Bearer ${TOKEN}` },
      });
      expect(await response.text()).toContain('"llm"');
      expect(existsSync(join(data, "scratch"))).toBe(true);
      const [runtime] = processesOf({
        ...plan,
        nats: "",
        redis: "",
        natsPort: 1,
        natsMonitorPort: 2,
        redisPort: undefined,
        streamKey: "",
        data,
      })
        .flat()
        .filter((spec) => spec.name === "runtime-1");
      expect(runtime?.env).toMatchObject({ TL_SHELL_ROOT: join(data, "scratch") });
    },
  );

  it("[RUN3] leaves nothing when it is killed", { timeout: 90_000 }, async () => {
    const system = start();
    await system.running();
    const pids = await pidsOf(system.output());
    system.child.kill("SIGKILL");
    await eventually(() => !pids.some(isAlive));
  });

  it("[RUN4] starts a killed edge again, and says so", { timeout: 90_000 }, async () => {
    const system = start();
    await system.running();
    const [edge] = edgesOf(plan);
    if (edge === undefined) throw new Error("there are two edges");
    process.kill((await holderOf(edge.port))?.pid ?? NaN, "SIGKILL");
    await eventually(() => system.output().includes("edge-1 is back"), { timeoutMs: 30_000 });
    expect(system.output()).toContain("edge-1 ended (SIGKILL)");
    expect(await isReady(edge.adminPort)).toBe(true);
    system.child.kill("SIGTERM");
    expect(await system.exit).toBe(0);
  });

  it("[RUN5][PORT2] names a taken port and starts nothing", { timeout: 60_000 }, async () => {
    const squatter = createServer().listen(plan.port + 2, "127.0.0.1");
    await once(squatter, "listening");
    const system = start();
    expect(await system.exit).toBe(1);
    squatter.close();
    expect(system.output()).toMatch(
      new RegExp(`port ${plan.port + 2} \\(edge-2\\) is taken by .*pid ${process.pid}`),
    );
    expect(system.output()).not.toContain("starting");
  });

  it("[RUN6] refuses a data folder that another system is using", { timeout: 90_000 }, async () => {
    const first = start();
    await first.running();
    const second = start();
    expect(await second.exit).toBe(1);
    expect(second.output()).toContain(`running already (pid ${first.child.pid})`);
    first.child.kill("SIGTERM");
    expect(await first.exit).toBe(0);
  });

  it("says how to use it, and what is wrong with an option", async () => {
    const help = start("--help");
    expect(await help.exit).toBe(0);
    expect(help.output()).toContain("--admin-port PORT");
    const wrong = start("--prot", "1");
    expect(await wrong.exit).toBe(1);
    expect(wrong.output()).toContain("--prot");
    expect(() => readOptions(["--port", "9080"])).toThrow("overlap");
    expect(() => readOptions(["--port", "80a"])).toThrow(
      '--port must be a port number up to 65533, not "80a"',
    );
    expect(readOptions(["--port", "9090", "--data", "x"])).toEqual({
      port: 9090,
      adminPort: 9081,
      data: resolve("x"),
    });
  });
});
