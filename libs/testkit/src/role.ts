/**
 * Processes of a test or a bench itself. What makes the load and what takes it run outside the process
 * that keeps the books, and outside each other: a driver that shares a loop with another measures both.
 */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

/** What a role can be asked to do: one argument each, structured-cloned both ways. */
export type Methods = { readonly [name: string]: (argument: never) => unknown };

export interface Role<M extends Methods> {
  readonly name: string;
  readonly pid: number;
  /** Rejects with the role's own error, or when its process ends. */
  ask<K extends keyof M & string>(
    method: K,
    argument: Parameters<M[K]>[0],
  ): Promise<Awaited<ReturnType<M[K]>>>;
  stop(): void;
}

interface Question {
  readonly id: number;
  readonly method: string;
  readonly argument: unknown;
}

type Answer =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: string };

interface Waiting {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/** Starts a program that calls {@link serve}, in a process of its own. It ends when this one does. */
export function startRole<M extends Methods>(program: URL, name: string): Role<M> {
  // Without this process's own flags: a test runner's are not for it.
  const child: ChildProcess = fork(fileURLToPath(program), {
    serialization: "advanced",
    execArgv: ["--enable-source-maps"],
  });
  const waiting = new Map<number, Waiting>();
  let asked = 0;
  let ended: Error | undefined;

  child.on("message", (answer: Answer) => {
    const question = waiting.get(answer.id);
    waiting.delete(answer.id);
    if ("error" in answer) question?.reject(new Error(`${name}: ${answer.error}`));
    // Both ends are this package, built together: the method's own type is the answer's type.
    else question?.resolve(answer.value as never);
  });
  const end = (why: string): void => {
    ended ??= new Error(`${name} ended (${why})`);
    for (const question of waiting.values()) question.reject(ended);
    waiting.clear();
  };
  child.once("exit", (code, signal) => end(signal ?? `code ${code}`));
  child.once("error", (error) => end(error.message));
  const { pid } = child;
  if (pid === undefined) throw new Error(`${name} could not be started`);

  return {
    name,
    pid,
    ask: (method, argument) =>
      new Promise((resolve, reject) => {
        if (ended) return reject(ended);
        const id = ++asked;
        waiting.set(id, { resolve, reject });
        child.send({ id, method, argument } satisfies Question);
      }),
    stop: () => {
      child.kill("SIGKILL");
    },
  };
}

/** Called once by a role's file: answers questions until the asker is gone. */
export function serve(methods: Methods): void {
  process.on("message", (question: Question) => {
    void answer(methods, question).then((reply) => process.send?.(reply));
  });
  process.on("disconnect", () => process.exit(0));
  // A terminal's Ctrl-C goes to the whole group: the asker decides when we end.
  process.on("SIGINT", () => undefined);
}

async function answer(methods: Methods, question: Question): Promise<Answer> {
  const { id, method, argument } = question;
  try {
    const run = methods[method];
    if (run === undefined) throw new Error(`no method ${method}`);
    return { id, value: await run(argument as never) };
  } catch (error) {
    return { id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}
