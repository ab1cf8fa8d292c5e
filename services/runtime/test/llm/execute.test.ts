/** Real processes. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually, removeDir, tempDir } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { execute, type Execution, type ExecutionEnd } from "../../src/llm/execute.ts";
import { openOutput } from "../../src/llm/output.ts";

let folder: string;
beforeAll(() => {
  folder = tempDir("shell");
});
afterAll(() => removeDir(folder));

function sh(
  cmd: string,
  more: Partial<Execution> = {},
): { end: Promise<ExecutionEnd>; text: () => string } {
  let text = "";
  const end = execute({
    command: ["/bin/sh", "-c", cmd],
    folder,
    env: { PATH: "/usr/bin:/bin" },
    timeoutMs: 20_000,
    signal: new AbortController().signal,
    onOutput: (bytes) => (text += Buffer.from(bytes).toString("utf8")),
    ...more,
  });
  return { end, text: () => text };
}

const pidIn = (name: string): Promise<number> =>
  eventually(() => {
    const file = join(folder, name);
    return existsSync(file) ? Number(readFileSync(file, "utf8")) || undefined : undefined;
  });

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  // One that was killed and is still to be reaped counts as gone.
  return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
}

const gone = (pid: number): Promise<unknown> => eventually(() => !alive(pid));

describe("a command", () => {
  it("[SHL3] gives its exit code and what it prints on both streams", async () => {
    const { end, text } = sh("echo out; echo err >&2; exit 3");
    expect(await end).toEqual({ kind: "ended", exitCode: 3, signal: null, timedOut: false });
    expect(text()).toContain("out\n");
    expect(text()).toContain("err\n");
  });

  it("[SHL6] has no environment but what it is given, and reads nothing", async () => {
    const { end, text } = sh("env; cat; pwd");
    await end;
    expect(text()).not.toMatch(/HOME|OPENAI|NODE|TL_/);
    expect(text()).toContain(folder);
  });

  it("[SHL4] is killed with all that it has started when its time is over", async () => {
    const { end } = sh("sleep 300 & echo $! > slow; trap '' TERM; while :; do sleep 1; done", {
      timeoutMs: 100,
    });
    const pid = await pidIn("slow");
    expect(await end).toMatchObject({ timedOut: true });
    await gone(pid);
  });

  it("[SHL5] is killed with all that it has started when the run is stopped", async () => {
    const stop = new AbortController();
    const { end } = sh("sleep 300 & echo $! > stopped; wait", { signal: stop.signal });
    const pid = await pidIn("stopped");
    const reason = new Error("cancelled");
    stop.abort(reason);
    await expect(end).rejects.toBe(reason);
    await gone(pid);
    await expect(sh("echo", { signal: stop.signal }).end).rejects.toBe(reason);
  });

  it("[SHL5] leaves nothing in the background, and is not held up by what has left its group", async () => {
    const { end } = sh(
      "sleep 300 & echo $! > behind; setsid sleep 300 & echo $! > away; sleep 0.2",
    );
    expect(await end).toMatchObject({ exitCode: 0 });
    await gone(await pidIn("behind"));
    const away = await pidIn("away");
    if (alive(away)) process.kill(away, "SIGKILL");
  });

  it("[SHL5] that cannot be started says so", async () => {
    expect(await sh("", { command: [join(folder, "nothing")] }).end).toMatchObject({
      kind: "not_started",
    });
  });
});

describe("what a command prints", () => {
  const bytes = (text: string): Uint8Array => Buffer.from(text);

  it("[SHL3] is shown in pieces as it comes, characters whole", async () => {
    let shown = "";
    const output = openOutput((text) => (shown += text));
    const lantern = bytes("🏮");
    output.add(lantern.subarray(0, 2), "stdout");
    output.add(bytes("err"), "stderr");
    output.add(lantern.subarray(2), "stdout");
    await expect.poll(() => shown).toBe("err🏮");
    expect(output.end()).toEqual({ text: "err🏮", leftOut: 0 });
  });

  it("[SHL3] is kept by both ends, whatever it is", () => {
    let shown = 0;
    const output = openOutput((text) => (shown += text.length));
    for (let i = 0; i < 100_000; i++) output.add(bytes(`line ${i} ${"x".repeat(40)}\n`), "stdout");
    const { text, leftOut } = output.end();
    expect(text.length).toBeLessThan(33_000);
    expect(text).toMatch(/^line 0 x/);
    expect(text).toMatch(/line 99999 x+\n$/);
    expect(text).toContain(`[… ${leftOut} characters left out …]`);
    expect(shown).toBe(1024 * 1024);
  });

  it("[SHL3] is shown no more once it is closed", () => {
    const output = openOutput(() => expect.unreachable());
    output.add(bytes("late"), "stdout");
    output.close();
  });
});
