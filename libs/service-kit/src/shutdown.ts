/**
 * The end of a process: on a signal the steps of shutting down run in order, each within its time.
 *
 * A step that fails or takes too long is logged, and the next one runs: a NATS that hangs must not keep
 * clients from being told to go elsewhere. A second signal ends the process at once.
 */
import type { Logger } from "./log.ts";

export interface ShutdownStep {
  name: string;
  run: () => void | Promise<void>;
  timeoutMs: number;
}

export interface ShutdownOptions {
  steps: readonly ShutdownStep[];
  log: Pick<Logger, "info" | "warn" | "error" | "fatal"> & Partial<Pick<Logger, "flush">>;
  /** Stand-ins for tests. */
  process?: ProcessPort;
}

/** What is used of `process`. */
export interface ProcessPort {
  on: (event: string, listener: (arg: unknown) => void) => unknown;
  exit: (code: number) => void;
}

export interface Shutdown {
  /** Aborted when shutting down begins. */
  readonly signal: AbortSignal;
  /** Shuts down as a signal would; resolves after the last step. The process exits with `code`. */
  readonly begin: (reason: string, code?: number) => Promise<void>;
}

const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"];

/** `running`, then `stopping`; there is no way back. */
type Phase = { name: "running" } | { name: "stopping"; done: Promise<void> };

/**
 * Listens for SIGTERM, SIGINT and SIGHUP. An error that nobody caught exits at once with 1: what the
 * process believes can't be trusted then, and whatever it held can be had elsewhere.
 */
export function onSignals(options: ShutdownOptions): Shutdown {
  const { steps, log, process: port = process } = options;
  const aborter = new AbortController();
  let phase: Phase = { name: "running" };

  const begin = (reason: string, code = 0): Promise<void> => {
    if (phase.name === "stopping") return phase.done;
    log.info({ reason }, "shutting down");
    aborter.abort();
    const done = runSteps(steps, log).then(async () => {
      log.info("shut down");
      await flushed(log);
      port.exit(code);
    });
    phase = { name: "stopping", done };
    return done;
  };

  for (const signal of SIGNALS) {
    port.on(signal, () => {
      if (phase.name === "running") return void begin(signal);
      log.warn({ signal }, "a second signal: ending at once");
      port.exit(130);
    });
  }
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    port.on(event, (error) => {
      log.fatal({ err: error }, event);
      port.exit(1);
    });
  }
  return { signal: aborter.signal, begin };
}

async function runSteps(
  steps: readonly ShutdownStep[],
  log: ShutdownOptions["log"],
): Promise<void> {
  for (const step of steps) {
    const start = performance.now();
    try {
      await within(step);
      log.info(
        { step: step.name, ms: Math.round(performance.now() - start) },
        "shutdown step done",
      );
    } catch (error) {
      log.error({ step: step.name, err: error }, "shutdown step failed");
    }
  }
}

/** A reader of the log that has stopped reading must not keep the process. */
const FLUSH_MS = 1_000;

/**
 * pino writes in the background. What it writes by itself at the exit overtakes a write that is under way,
 * so the last lines came in another order than they were logged.
 */
async function flushed(log: ShutdownOptions["log"]): Promise<void> {
  const flush = log.flush?.bind(log);
  if (flush === undefined) return;
  // It also wants the data on the disk (fsync), and fails where stdout is a pipe: all is written then.
  const run = (): Promise<void> => new Promise((resolve) => flush(() => resolve()));
  try {
    await within({ name: "flush the log", run, timeoutMs: FLUSH_MS });
  } catch (error) {
    log.error({ err: error }, "the log could not be written to its end");
  }
}

async function within({ run, timeoutMs }: ShutdownStep): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    await Promise.race([run(), late]);
  } finally {
    clearTimeout(timer);
  }
}
