import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { onSignals, type ShutdownStep } from "@throughline/service-kit";
import { eventually } from "@throughline/testkit";

function setUp(steps: ShutdownStep[]): {
  raise: (event: string, arg?: unknown) => void;
  exits: number[];
  log: string[];
  shutdown: ReturnType<typeof onSignals>;
} {
  const listeners = new Map<string, (arg: unknown) => void>();
  const exits: number[] = [];
  const log: string[] = [];
  const write =
    (level: string) =>
    (...args: unknown[]): void =>
      void log.push(`${level} ${JSON.stringify(args)}`);
  const shutdown = onSignals({
    steps,
    log: { info: write("info"), warn: write("warn"), error: write("error"), fatal: write("fatal") },
    process: {
      on: (event, listener) => listeners.set(event, listener),
      exit: (code) => void exits.push(code),
    },
  });
  return { raise: (event, arg) => listeners.get(event)?.(arg), exits, log, shutdown };
}

describe("shutting down", () => {
  it.each(["SIGTERM", "SIGINT", "SIGHUP"])(
    "[END1] on %s runs the steps one after the other, then exits with 0",
    async (signal) => {
      const seen: string[] = [];
      const step = (name: string): ShutdownStep => ({
        name,
        timeoutMs: 1000,
        run: async () => {
          seen.push(`${name} begins`);
          await new Promise((resolve) => setImmediate(resolve));
          seen.push(`${name} ends`);
        },
      });
      const { raise, exits, shutdown } = setUp([step("drain"), step("nats")]);
      expect(shutdown.signal.aborted).toBe(false);
      raise(signal);
      expect(shutdown.signal.aborted).toBe(true);
      await eventually(() => exits.length > 0);
      expect(seen).toEqual(["drain begins", "drain ends", "nats begins", "nats ends"]);
      expect(exits).toEqual([0]);
    },
  );

  it("[END2] goes on when a step fails or takes too long", async () => {
    const seen: string[] = [];
    const { raise, exits, log } = setUp([
      { name: "fails", timeoutMs: 1000, run: () => Promise.reject(new Error("no")) },
      {
        name: "throws",
        timeoutMs: 1000,
        run: () => {
          throw new Error("not even a promise");
        },
      },
      { name: "hangs", timeoutMs: 20, run: () => new Promise(() => undefined) },
      { name: "last", timeoutMs: 1000, run: () => void seen.push("last") },
    ]);
    raise("SIGTERM");
    await eventually(() => exits.length > 0);
    expect(seen).toEqual(["last"]);
    expect(
      log
        .filter((line) => line.startsWith("error"))
        .map((line) => /"step":"(\w+)"/.exec(line)?.[1]),
    ).toEqual(["fails", "throws", "hangs"]);
  });

  it("[END3] ends at once on a second signal", async () => {
    const { raise, exits } = setUp([
      { name: "hangs", timeoutMs: 60_000, run: () => new Promise(() => undefined) },
    ]);
    raise("SIGTERM");
    expect(exits).toEqual([]);
    raise("SIGTERM");
    expect(exits).toEqual([130]);
  });

  it.each(["uncaughtException", "unhandledRejection"])(
    "[END4] ends at once with 1 on %s, and says why",
    (event) => {
      const { raise, exits, log } = setUp([]);
      raise(event, new Error("surprise"));
      expect(exits).toEqual([1]);
      expect(log[0]).toContain("fatal");
    },
  );

  it("[END5] begins on request, once, with the exit code asked for", async () => {
    let runs = 0;
    const { shutdown, exits } = setUp([{ name: "count", timeoutMs: 100, run: () => void runs++ }]);
    await Promise.all([shutdown.begin("NATS is too old", 1), shutdown.begin("again", 2)]);
    expect([runs, exits]).toEqual([1, [1]]);
  });

  it("[END1] the log's last lines come in their order, however long writing takes", async () => {
    const ending = fileURLToPath(new URL("./ending.mjs", import.meta.url));
    const child = spawn(process.execPath, [ending, "busy"], {
      env: { ...process.env, UV_THREADPOOL_SIZE: "1" },
    });
    let output = "";
    child.stdout.on("data", (chunk) => (output += chunk.toString()));
    await eventually(() => output.includes("up"));
    child.kill("SIGTERM");
    await once(child, "close");
    expect(output.match(/"msg":"[^"]*"/g)).toEqual([
      '"msg":"up"',
      '"msg":"shutting down"',
      '"msg":"the only step"',
      '"msg":"shutdown step done"',
      '"msg":"shut down"',
    ]);
  });

  it("[END1] works in a real process", async () => {
    const child = spawn(process.execPath, [
      fileURLToPath(new URL("./ending.mjs", import.meta.url)),
    ]);
    let output = "";
    child.stdout.on("data", (chunk) => (output += chunk.toString()));
    await eventually(() => output.includes("up"));
    child.kill("SIGTERM");
    // Not "exit": what it has written last may still be under way then.
    expect(await once(child, "close")).toEqual([0, null]);
    expect(output).toMatch(/"reason":"SIGTERM"[^]*"step":"only"[^]*"shut down"/);
  });
});
