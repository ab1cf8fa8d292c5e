import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it, vi } from "vitest";
import { eventually, freePorts, manualClock, seededRandom } from "@throughline/testkit";

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

describe("eventually", () => {
  it("[KIT7] returns the first truthy value, and takes a throw for not yet", async () => {
    let calls = 0;
    const value = await eventually(() => {
      calls++;
      if (calls === 1) throw new Error("early");
      return calls === 3 && "third";
    });
    expect(value).toBe("third");
    expect(calls).toBe(3);
  });

  it("[KIT7] rejects with what was waited for and why not, cause included", async () => {
    const cause = new Error("still red");
    const waiting = eventually(
      () => {
        throw cause;
      },
      { timeoutMs: 30, what: "the light is green" },
    );
    await expect(waiting).rejects.toThrow("not within 30 ms: the light is green: still red");
    await expect(waiting).rejects.toHaveProperty("cause", cause);
  });
});

describe("seededRandom", () => {
  it("[KIT8] gives the same again for one seed, and prints it", () => {
    const printed = vi.spyOn(console, "log").mockReturnValue(undefined);
    const draw = (seed: number): number[] => {
      const random = seededRandom(seed);
      return [
        random.next(),
        random.int(1000),
        random.between(5, 7),
        ...random.shuffle([1, 2, 3, 4, 5, 6, 7, 8]),
      ];
    };
    expect(draw(42)).toEqual(draw(42));
    expect(draw(42)).not.toEqual(draw(43));
    expect(printed).toHaveBeenCalledWith("seed 42 (TL_SEED=42 repeats it)");
  });

  it("[KIT8] takes the seed from TL_SEED, and refuses one that is no number", () => {
    vi.spyOn(console, "log").mockReturnValue(undefined);
    vi.stubEnv("TL_SEED", "77");
    expect(seededRandom().seed).toBe(77);
    vi.stubEnv("TL_SEED", "abc");
    expect(() => seededRandom()).toThrow('TL_SEED must be a whole number, not "abc"');
  });

  it("[KIT8] draws evenly within its bounds", () => {
    vi.spyOn(console, "log").mockReturnValue(undefined);
    const random = seededRandom(1);
    const counts = [0, 0, 0, 0];
    for (let i = 0; i < 40_000; i++) counts[random.between(0, 3)]!++;
    for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500);
  });
});

describe("manualClock", () => {
  it("[KIT9] runs what falls due in order of time, also what is set meanwhile, and nothing else", () => {
    const clock = manualClock(1000);
    const seen: string[] = [];
    clock.after(20, () => seen.push(`b@${clock.now()}`));
    clock.after(10, () => {
      seen.push(`a@${clock.now()}`);
      clock.after(5, () => seen.push(`c@${clock.now()}`));
    });
    clock.after(20, () => seen.push("second of two"));
    clock.after(11, () => seen.push("called off"))();
    clock.after(100, () => seen.push("later"));
    clock.advance(30);
    expect(seen).toEqual(["a@1010", "c@1015", "b@1020", "second of two"]);
    expect([clock.now(), clock.pending]).toEqual([1030, 1]);
  });

  it("[KIT9] lets promises settle between timers when asked to", async () => {
    const clock = manualClock();
    const seen: number[] = [];
    const tick = async (): Promise<void> => {
      await Promise.resolve();
      seen.push(clock.now());
      clock.after(10, () => void tick());
    };
    void tick();
    await clock.advanceAsync(35);
    expect(seen).toEqual([0, 10, 20, 30]);
  });
});

describe("freePorts", () => {
  it("[KIT10] gives different ports below the range of outgoing connections", async () => {
    const ports = await freePorts(50);
    expect(new Set(ports).size).toBe(50);
    expect(Math.max(...ports)).toBeLessThan(32_768);
  });
});

describe("the reaper", () => {
  it("[KIT11] ends a killed owner's processes, paused ones too, and removes its folders", async () => {
    const owner = spawn(
      process.execPath,
      [fileURLToPath(new URL("./owner.mjs", import.meta.url))],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let output = "";
    owner.stdout.on("data", (chunk) => (output += chunk.toString()));
    const { pids, dir } = await eventually(() => output.endsWith("\n") && JSON.parse(output));
    expect(pids.map(isAlive)).toEqual([true, true]);
    owner.kill("SIGKILL");
    await eventually(() => !pids.some(isAlive) && !existsSync(dir));
  });
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
