/** Runs a program with all that it starts in one process group, and leaves none of it behind. */
import { spawn } from "node:child_process";
import { errorCode } from "../roots.ts";

export interface Execution {
  readonly command: readonly [string, ...string[]];
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly onOutput: (bytes: Uint8Array, from: "stdout" | "stderr") => void;
}

export type ExecutionEnd =
  | {
      readonly kind: "ended";
      readonly exitCode: number | null;
      readonly signal: string | null;
      readonly timedOut: boolean;
    }
  | { readonly kind: "not_started"; readonly cause: unknown };

/** After SIGTERM, for a program to put its files away. */
const TERM_GRACE_MS = 1_000;
/** A child that left the group may hold the pipes open for ever: what it prints then is not waited for. */
const PIPES_GRACE_MS = 500;

/** Rejects with the signal's reason when aborted, once the group has been killed. */
export async function execute(options: Execution): Promise<ExecutionEnd> {
  const { signal, timeoutMs } = options;
  signal.throwIfAborted();
  const [program, ...args] = options.command;
  // Detached: a group of its own, so that one kill reaches what the command has started.
  const child = spawn(program, args, {
    cwd: options.folder,
    env: { ...options.env },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid === undefined) {
    return new Promise((settle) => {
      child.once("error", (cause) => settle({ kind: "not_started", cause }));
    });
  }
  let timedOut = false;
  let killing: NodeJS.Timeout | undefined;
  const stop = (): void => {
    if (killing !== undefined) return;
    killGroup(pid, "SIGTERM");
    killing = setTimeout(() => killGroup(pid, "SIGKILL"), TERM_GRACE_MS);
  };
  const timer = setTimeout(() => {
    timedOut = true;
    stop();
  }, timeoutMs);
  signal.addEventListener("abort", stop, { once: true });
  child.stdout.on("data", (bytes: Buffer) => options.onOutput(bytes, "stdout"));
  child.stderr.on("data", (bytes: Buffer) => options.onOutput(bytes, "stderr"));
  try {
    const end = await new Promise<ExecutionEnd>((settle) => {
      let late: NodeJS.Timeout | undefined;
      // The shell is gone; what it left in the background goes with it.
      child.once("exit", () => {
        killGroup(pid, "SIGKILL");
        late = setTimeout(() => {
          child.stdout.destroy();
          child.stderr.destroy();
        }, PIPES_GRACE_MS);
      });
      child.once("close", (exitCode, by) => {
        clearTimeout(late);
        settle({ kind: "ended", exitCode, signal: by, timedOut });
      });
    });
    signal.throwIfAborted();
    return end;
  } finally {
    clearTimeout(timer);
    clearTimeout(killing);
    signal.removeEventListener("abort", stop);
  }
}

function killGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch (error) {
    // Nobody is left in it, or only what runs as somebody else.
    const code = errorCode(error);
    if (code !== "ESRCH" && code !== "EPERM") throw error;
  }
}
