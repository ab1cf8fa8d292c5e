/**
 * What the agent `scripted` is told to do, in its run's input. One agent that takes its program from the
 * test says in the test itself what the run does; the worker that hosts it is `agents/main.mjs`, and the
 * tools that it has there stand in `agents/scripted.mjs`. All others are the client's.
 */
export type Op =
  /** A whole message: the text, `times` over (once). */
  | {
      readonly op: "say";
      readonly text: string;
      readonly times?: number;
      readonly channel?: "text" | "reasoning";
    }
  /** A message, word by word; `words` of them, one each `everyMs`. */
  | { readonly op: "stream"; readonly words: number; readonly everyMs: number }
  /** A step. It fails as long as it was begun fewer than `fails` times before. */
  | {
      readonly op: "step";
      readonly name: string;
      readonly do: readonly Op[];
      readonly fails?: number;
      readonly retries?: number;
      readonly ask?: boolean;
    }
  /** Several tools at once; gives the outcomes by the calls' order. `tell`: emits each as it comes. */
  | {
      readonly op: "tools";
      readonly calls: readonly { name: string; args: unknown }[];
      readonly tell?: boolean;
    }
  | {
      readonly op: "approval";
      readonly operation: string;
      readonly expiresInMs?: number;
      readonly default?: "allow" | "deny";
    }
  | { readonly op: "input"; readonly prompt: string }
  /** What has come into the inbox; with `wait` the next thing that comes. */
  | { readonly op: "inbox"; readonly wait?: boolean }
  /** All at once. */
  | { readonly op: "all"; readonly do: readonly Op[] }
  | { readonly op: "sleep"; readonly ms: number }
  | { readonly op: "emit"; readonly name: string }
  | { readonly op: "fail"; readonly code: string };

export const SCRIPTED = "scripted";
/** The same agent under another name: offered only by workers that are told to. */
export const LATE = "late";

export interface Script {
  readonly do: readonly Op[];
  /** Waited for after each operation, so that a kill can fall between two. */
  readonly pace_ms?: number;
}
