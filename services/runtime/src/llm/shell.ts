/**
 * `shell`: runs a command line in a folder of the worker's machine. Each call must be allowed by a person.
 *
 * The folder is where a command begins, and no fence: what the worker's user may do, a command may do.
 * Of the environment it is given nothing but where programs are, so that no setting leaks by `env`.
 */
import { realpath, stat } from "node:fs/promises";
import { AgentError, defineTool, type Tool, type ToolContext } from "@throughline/worker";
import { z } from "zod";
import { errorCode } from "../roots.ts";
import { execute } from "./execute.ts";
import { openOutput } from "./output.ts";

export interface ShellOptions {
  readonly folder: string;
  /** Where programs are looked for, as in PATH. */
  readonly searchPath: string;
  readonly timeoutMs: number;
}

const argsSchema = z.strictObject({ cmd: z.string().min(1).max(32_768) });

const INPUT_SCHEMA = {
  type: "object",
  properties: { cmd: { type: "string", description: "A command line for sh." } },
  required: ["cmd"],
  additionalProperties: false,
};

export interface ShellResult {
  /** Null where a signal ended it. */
  readonly exit_code: number | null;
  readonly signal: string | null;
  /** What it printed, both streams as they came; of much, the beginning and the end. */
  readonly output: string;
  /** Characters left out of `output`. */
  readonly left_out: number;
  readonly timed_out: boolean;
}

/** For the end of a command that does not go by itself, on top of its own time. */
const GRACE_MS = 10_000;

/** Throws when the folder is none: a typing error must not end in a shell somewhere else. */
export async function openShell({ folder, ...rest }: ShellOptions): Promise<Tool> {
  const options = { ...rest, folder: await realFolder(folder) };
  return defineTool({
    name: "shell",
    description:
      "Runs a command line with sh in a scratch folder, and gives back its exit code and what it printed. A person is asked first.",
    input_schema: INPUT_SCHEMA,
    parse: (raw) => argsSchema.parse(raw),
    approval: { risk: "high", description: ({ cmd }) => cmd },
    timeoutMs: options.timeoutMs + GRACE_MS,
    run: ({ cmd }, ctx) => run(cmd, ctx, options),
  });
}

async function realFolder(named: string): Promise<string> {
  try {
    const folder = await realpath(named);
    if ((await stat(folder)).isDirectory()) return folder;
  } catch (error) {
    throw new Error(`TL_SHELL_ROOT: ${named} can't be used (${errorCode(error)})`, {
      cause: error,
    });
  }
  throw new Error(`TL_SHELL_ROOT: ${named} is not a folder`);
}

async function run(cmd: string, ctx: ToolContext, options: ShellOptions): Promise<ShellResult> {
  const output = openOutput((text) => ctx.progress({ output: text }));
  try {
    const end = await execute({
      command: ["/bin/sh", "-c", cmd],
      folder: options.folder,
      env: { PATH: options.searchPath, HOME: options.folder, LANG: "C.UTF-8", TERM: "dumb" },
      timeoutMs: options.timeoutMs,
      signal: ctx.signal,
      onOutput: (bytes, from) => output.add(bytes, from),
    });
    if (end.kind === "not_started")
      throw new AgentError("shell_failed", "the shell can't be started", { cause: end.cause });
    const { text, leftOut } = output.end();
    return {
      exit_code: end.exitCode,
      signal: end.signal,
      output: text,
      left_out: leftOut,
      timed_out: end.timedOut,
    };
  } finally {
    output.close();
  }
}
