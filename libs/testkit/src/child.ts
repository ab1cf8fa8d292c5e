/**
 * A real process that a test may stop, kill, freeze and start again.
 *
 * Output goes to a file and not to a pipe: a test whose event loop is busy would otherwise block the
 * process under test on a full pipe, and change what is being tested.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { closeSync, openSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { platform } from "node:process";
import { eventually } from "./eventually.ts";
import { guard, tempDir, unguard } from "./reaper.ts";

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** It could not be started at all. */
  error?: Error;
}

/** What all launched processes can do. Every method is safe to call in any state. */
export interface LaunchedProcess {
  readonly name: string;
  /** Changes at every `restart`. */
  readonly pid: number;
  readonly running: boolean;
  /** Resolves when the process that runs now ends. */
  readonly exited: Promise<Exit>;
  /** All output since the first start. */
  logs(): string;
  /** SIGTERM (after waking it if it is paused), SIGKILL after 15 s; resolves when it has ended. */
  stop(): Promise<Exit>;
  /** SIGKILL; resolves when it has ended. */
  kill(): Promise<Exit>;
  /** SIGSTOP: sockets stay open and nothing answers. Resolves when the last of its threads stands still. */
  pause(): Promise<void>;
  /** SIGCONT. */
  resume(): void;
  /** Starts it again on the same ports and folder, stopping it first where it runs; resolves when ready. */
  restart(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
}

export interface LaunchSpec {
  name: string;
  command: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Asked again and again until it gives true; a throw means "not yet". */
  ready: () => Promise<boolean>;
  readyTimeoutMs?: number;
}

const STOP_GRACE_MS = 15_000;

/** Starts a process and waits until it is ready. Rejects, with its output, if it ends before that. */
export async function launch(spec: LaunchSpec): Promise<LaunchedProcess> {
  const logDir = tempDir("log");
  const logFile = join(logDir, "output.log");
  const logs = (): string => readFileSync(logFile, "utf8");
  let current = await begin();

  async function begin(): Promise<Running> {
    const running = start(spec, logFile);
    let ended: Exit | undefined;
    void running.exited.then((exit) => (ended = exit));
    try {
      await eventually(async () => ended !== undefined || (await spec.ready()), {
        timeoutMs: spec.readyTimeoutMs ?? 20_000,
        what: `${spec.name} is ready`,
      });
      if (ended !== undefined)
        throw new Error(`${spec.name} ended with ${describe(ended)} before it was ready`);
    } catch (error) {
      running.send("SIGKILL");
      await running.exited;
      const message = error instanceof Error ? error.message : String(error);
      throw new Error(`${message}\n--- its last output:\n${logs().slice(-4000)}`, { cause: error });
    }
    return running;
  }

  const stop = async (): Promise<Exit> => {
    current.send("SIGCONT");
    current.send("SIGTERM");
    const force = setTimeout(() => current.send("SIGKILL"), STOP_GRACE_MS);
    const exit = await current.exited;
    clearTimeout(force);
    return exit;
  };

  return {
    name: spec.name,
    get pid() {
      return current.pid;
    },
    get running() {
      return current.alive();
    },
    get exited() {
      return current.exited;
    },
    logs,
    stop,
    kill: () => {
      current.send("SIGKILL");
      return current.exited;
    },
    async pause() {
      const paused = current;
      paused.send("SIGSTOP");
      const still = (): boolean => !paused.alive() || standsStill(paused.pid);
      await eventually(still, { what: `${spec.name} is paused` });
    },
    resume: () => current.send("SIGCONT"),
    async restart() {
      await stop();
      current = await begin();
    },
    signal: (signal) => current.send(signal),
  };
}

interface Running {
  pid: number;
  exited: Promise<Exit>;
  alive(): boolean;
  send(signal: NodeJS.Signals): void;
}

function start(spec: LaunchSpec, logFile: string): Running {
  const log = openSync(logFile, "a");
  // A group of its own: a Ctrl-C in the terminal is for the test run, whose end ends this one.
  const child: ChildProcess = spawn(spec.command, spec.args, {
    detached: true,
    stdio: ["ignore", log, log],
    env: spec.env ?? process.env,
    ...(spec.cwd === undefined ? {} : { cwd: spec.cwd }),
  });
  closeSync(log);
  const pid = child.pid;
  const exited = new Promise<Exit>((resolve) => {
    child.once("error", (error) => resolve({ code: null, signal: null, error }));
    child.once("exit", (code, signal) => {
      if (pid !== undefined) unguard(pid);
      resolve({ code, signal });
    });
  });
  if (pid === undefined) return { pid: -1, exited, alive: () => false, send: () => undefined };
  guard(pid);
  const alive = (): boolean => child.exitCode === null && child.signalCode === null;
  return {
    pid,
    exited,
    alive,
    send: (signal) => {
      if (alive()) child.kill(signal);
    },
  };
}

/**
 * The signal is delivered thread by thread: until the last of them has taken it, a process that was
 * just sent SIGSTOP can still answer (signal(7), proc_pid_stat(5)).
 */
function standsStill(pid: number): boolean {
  if (platform !== "linux") {
    return spawnSync("ps", ["-o", "state=", "-p", `${pid}`], {
      encoding: "utf8",
    }).stdout.startsWith("T");
  }
  const tasks = `/proc/${pid}/task`;
  return readdirSync(tasks).every((task) => {
    const stat = readFileSync(join(tasks, task, "stat"), "utf8");
    return stat[stat.lastIndexOf(")") + 2] === "T";
  });
}

function describe(exit: Exit): string {
  if (exit.error) return exit.error.message;
  return exit.signal === null ? `code ${exit.code}` : exit.signal;
}

/** Adds to a launched process what its kind has besides. Getters stay getters: `pid` changes at a restart. */
export function extend<P extends LaunchedProcess, Extra extends object>(
  process: P,
  extra: Extra,
): P & Extra {
  return Object.defineProperties(extra, Object.getOwnPropertyDescriptors(process)) as P & Extra;
}
