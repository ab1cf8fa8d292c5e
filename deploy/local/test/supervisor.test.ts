import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually } from "@throughline/testkit";
import { lock } from "../lock.mjs";
import { createSupervisor, type Spec } from "../supervisor.mjs";

let home: string;
const heard: string[] = [];
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "throughline-supervisor-"));
  heard.length = 0;
});
afterEach(() => rmSync(home, { recursive: true }));

const supervisor = (): ReturnType<typeof createSupervisor> =>
  createSupervisor({
    logDir: home,
    restartDelayMs: 20,
    events: {
      crashed: (name, how) => void heard.push(`${name} crashed: ${how}`),
      back: (name) => void heard.push(`${name} back`),
      hopeless: (name) => void heard.push(`${name} hopeless`),
    },
  });

/** A process that writes its pid to a file, then does as the script says. */
function processOf(
  name: string,
  script = "setInterval(() => {}, 1000)",
): Spec & { pid: () => number } {
  const file = join(home, `${name}.pid`);
  return {
    name,
    command: process.execPath,
    args: [
      "-e",
      `require("fs").writeFileSync(${JSON.stringify(file)}, String(process.pid)); ${script}`,
    ],
    ready: () => Promise.resolve(existsSync(file)),
    pid: () => Number(readFileSync(file, "utf8")),
  };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe("the supervisor", () => {
  it("[RUN1] a start resolves when the process is ready, and rejects with its last words when it ends before", async () => {
    const all = supervisor();
    const good = processOf("good");
    await all.start(good);
    expect(isAlive(good.pid())).toBe(true);
    const bad = {
      ...processOf("bad", 'console.error("no such config"); process.exit(3)'),
      ready: () => Promise.resolve(false),
    };
    await expect(all.start(bad)).rejects.toThrow(
      "bad ended with code 3 before it was ready:\nno such config",
    );
    await all.stop([["good", "bad"]]);
  });

  it("[RUN2] stops group after group, wakes who is paused, and leaves nothing", async () => {
    const all = supervisor();
    const order = join(home, "order");
    const noting = (name: string): ReturnType<typeof processOf> =>
      processOf(
        name,
        `process.on("SIGTERM", () => setTimeout(() => { require("fs").appendFileSync(${JSON.stringify(order)}, "${name} "); process.exit(0) }, 50)); setInterval(() => {}, 1000)`,
      );
    const store = noting("store");
    const edge = noting("edge");
    await all.start(store);
    await all.start(edge);
    process.kill(edge.pid(), "SIGSTOP");
    await all.stop([["edge"], ["store"]]);
    expect(readFileSync(order, "utf8")).toBe("edge store ");
    expect([edge, store].map((each) => isAlive(each.pid()))).toEqual([false, false]);
    expect(heard).toEqual([]);
  });

  it("[RUN4] starts a crashed process again, and says so", async () => {
    const all = supervisor();
    const one = processOf("one");
    await all.start(one);
    const first = one.pid();
    rmSync(join(home, "one.pid"));
    process.kill(first, "SIGKILL");
    await eventually(() => heard.includes("one back"));
    expect(heard).toEqual(["one crashed: SIGKILL", "one back"]);
    expect(one.pid()).not.toBe(first);
    await all.stop([["one"]]);
    expect(isAlive(one.pid())).toBe(false);
  });

  it("[RUN4] gives up on one that keeps crashing, with its last words at hand", async () => {
    const all = supervisor();
    const flag = join(home, "broken");
    const one = processOf(
      "one",
      `if (require("fs").existsSync(${JSON.stringify(flag)})) { console.error("still broken"); process.exit(1) } setInterval(() => {}, 1000)`,
    );
    await all.start(one);
    writeFileSync(flag, "");
    process.kill(one.pid(), "SIGKILL");
    await eventually(() => heard.includes("one hopeless"), { timeoutMs: 20_000 });
    expect(heard.filter((line) => line.includes("crashed"))).toHaveLength(4);
    expect(all.lastLog("one")).toContain("still broken");
    await all.stop([["one"]]);
  });

  it("[RUN2] for the impatient ends all at once", async () => {
    const all = supervisor();
    const stubborn = processOf(
      "stubborn",
      'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)',
    );
    await all.start(stubborn);
    const stopping = all.stop([["stubborn"]]);
    all.kill();
    await stopping;
    expect(isAlive(stubborn.pid())).toBe(false);
  });
});

describe("the lock on a data folder", () => {
  it("[RUN6] does not count once its owner is dead, nor when a stranger has got its number", async () => {
    writeFileSync(join(home, "owner.pid"), "999999999");
    (await lock(home))();
    writeFileSync(join(home, "owner.pid"), `${process.ppid}`);
    const unlock = await lock(home);
    expect(readFileSync(join(home, "owner.pid"), "utf8")).toBe(`${process.pid}`);
    unlock();
    expect(existsSync(join(home, "owner.pid"))).toBe(false);
  });

  it("[RUN6] says in a sentence why a folder cannot be taken", async () => {
    const file = join(home, "a-file");
    writeFileSync(file, "");
    for (const data of [file, join(file, "below"), "/proc/throughline"]) {
      await expect(lock(data)).rejects.toThrow(
        /^the data folder .* cannot be used: .*--data FOLDER$/,
      );
    }
  });
});
